"""Tools of the conformance suite that try to reach somebody."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import stat
import subprocess
from collections.abc import Callable
from typing import Any

from tests.sandbox.attempts import ESCAPED, attempt, call, number_of, raw_call

_FAMILIES = range(1, 46)
_KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET)
_X32 = 0x40000000


def _connect(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as sock:
        sock.settimeout(2)
        sock.connect(address)
        sock.sendall(b"hello")


def tcp(port: int, host: str = "127.0.0.1") -> str:
    return attempt(
        lambda: _connect(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, (host, port))
    )


def udp(port: int) -> str:
    return attempt(lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)))


def serve() -> str:
    """Listen for others."""

    def listening() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.getsockname()

    return attempt(listening)


def _address(path: str) -> str:
    """A leading @ stands for an abstract address."""
    return "\0" + path[1:] if path.startswith("@") else path


def unix(path: str, kind: str = "STREAM") -> str:
    kinds = {"STREAM": socket.SOCK_STREAM, "DGRAM": socket.SOCK_DGRAM, "SEQPACKET": socket.SOCK_SEQPACKET}
    return attempt(lambda: _connect(socket.AF_UNIX, kinds[kind], _address(path)))


def unix_by_pair(path: str) -> str:
    """A pair of datagram sockets needs no address, but each can be pointed at one."""

    def sent() -> None:
        ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.sendto(b"hello", _address(path))

    return attempt(sent)


def unix_by_inheritance(path: str) -> list[str]:
    """Every open socket, pointed at the address."""
    answers = []
    for number in map(int, os.listdir("/proc/self/fd")):
        if not _is_socket(number):
            continue
        with socket.socket(fileno=os.dup(number)) as sock:
            sock.setblocking(False)
            answers.append(attempt(lambda s=sock: s.connect(_address(path))))
            if sock.type == socket.SOCK_DGRAM:
                answers.append(attempt(lambda s=sock: s.sendto(b"hello", _address(path))))
    return answers


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


def families() -> list[int]:
    """The address families in which a socket of any kind can be had."""
    return [family for family in _FAMILIES if ESCAPED in [_had(family, kind) for kind in _KINDS]]


def _had(family: int, kind: int) -> str:
    return attempt(lambda: socket.socket(family, kind).close())


def raw() -> list[str]:
    """Sockets that see or forge the traffic of others."""
    return [
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP).close()),
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()),
        _had(socket.AF_PACKET, socket.SOCK_RAW),
        _had(socket.AF_PACKET, socket.SOCK_DGRAM),
    ]


def io_uring() -> str:
    return attempt(lambda: call("io_uring_setup", 1, ctypes.create_string_buffer(120)))


def shell_tcp(port: int) -> str:
    """A shell's own way to the network, in a process of its own."""
    done = subprocess.run(
        ["bash", "-c", f"echo hello > /dev/tcp/127.0.0.1/{port}"], check=False, stderr=subprocess.DEVNULL
    )
    return ESCAPED if done.returncode == 0 else "EPERM"


def other_abi(abi: str, action: str) -> str:
    """The same system calls by their numbers in another ABI, which a filter that forgets the ABI lets pass."""
    if abi == "x32":
        numbers = {
            "socket": (41, (1, 1, 0)),
            "setsid": (number_of("setsid"), ()),
            "unshare": (number_of("unshare"), (0x20000,)),
        }
        number, arguments = numbers[action]
        return attempt(lambda: raw_call(_X32 | number, *arguments))
    numbers_32 = {"socket": (359, 1, 1), "setsid": (66, 0, 0), "unshare": (310, 0x20000, 0)}
    result = _int_0x80()(*numbers_32[action])
    return ESCAPED if result >= 0 else os.strerror(-result) and _name(-result)


def _name(code: int) -> str:
    def fail() -> None:
        raise OSError(code, "")

    return attempt(fail)


def _int_0x80() -> Callable[[int, int, int], int]:
    """A function (number, first, second) -> result that enters the kernel by its 32-bit door."""
    code = (
        b"\x53\x89\xf8\x89\xf3\x89\xd1\x31\xd2\xcd\x80\x5b\xc3"  # push rbx; eax=edi; ebx=esi; ecx=edx; edx=0; int 80h
    )
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)
    function = kind(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    function.page = page  # type: ignore[attr-defined]
    return function
