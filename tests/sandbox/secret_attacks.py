"""Tools of the conformance suite that look for what the agent's process knows."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.sandbox.attempts import attempt

_LARGEST = 256 << 20


def environment(name: str) -> str | None:
    return os.environ.get(name)


def environment_names() -> list[str]:
    return sorted(os.environ)


def first_environment() -> list[str]:
    """The names in the environment that the process was started with, as the kernel kept it."""
    pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    return [pair.partition(b"=")[0].decode() for pair in pairs if pair]


def look_into(pid: int, file: str) -> str:
    def read() -> None:
        with open(f"/proc/{pid}/{file}", "rb") as opened:
            opened.read(1)

    def listed() -> None:
        os.readlink(f"/proc/{pid}/{file}")

    return attempt(listed if file in ("root", "cwd", "exe", "fd/0", "ns/mnt") else read)


def enter(path: str) -> str:
    return attempt(lambda: os.listdir(path))


def processes() -> dict[str, str]:
    """Every other process that can be seen, with what can be read of its environment."""
    found: dict[str, str] = {}
    for name in attempt_listing("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                found[name] = Path(f"/proc/{name}/environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
    return found


def attempt_listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def remembers(head: str, tail_hash: str) -> bool:
    """Whether the process's memory holds a secret, known here by its first half and the second half's hash."""
    pattern = re.compile(re.escape(head.encode()) + b"(.{16})", re.DOTALL)
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *_, name = [*line.split(maxsplit=5), ""][:6]
        if not rights.startswith("rw") or name.startswith("[v"):
            continue
        start, end = (int(part, 16) for part in span.split("-"))
        if end - start > _LARGEST:
            continue
        memory = (ctypes.c_char * (end - start)).from_address(start)
        for match in pattern.finditer(memory):
            if hashlib.sha256(match.group(1)).hexdigest() == tail_hash:
                return True
    return False


def descriptors() -> dict[str, str]:
    """The open descriptors and what they are."""
    found: dict[str, str] = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the one that listed the folder
            continue
    return found


def rights() -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {name: pairs[name] for name in ("NoNewPrivs", "Seccomp", "CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd")}


_RIGHTS = """
import ctypes, json
libc, found = ctypes.CDLL(None), (ctypes.c_uint32 * 6)()
libc.capget(ctypes.byref((ctypes.c_uint32 * 2)(0x20080522, 0)), ctypes.byref(found))
effective, permitted = found[0] | found[3], found[1] | found[4]
print(json.dumps(dict(no_new_privs=libc.prctl(39, 0, 0, 0, 0), seccomp=libc.prctl(21, 0, 0, 0, 0),
                      effective=effective, permitted=permitted)))
"""


def rights_of_a_program() -> dict[str, int]:
    """What a program that is started here may do, as the kernel tells it."""
    done = subprocess.run([sys.executable, "-I", "-c", _RIGHTS], capture_output=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def clocks() -> list[float]:
    return [time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)]
