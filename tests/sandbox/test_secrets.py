"""Conformance: what the agent's process knows stays there, unless it was declared."""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import process_attacks, secret_attacks
from tests.sandbox.support import HIDDEN, ISOLATED, assert_denied

BASICS = {"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM", "VIRTUAL_ENV", "PWD"}
PRIVATE_FILES = [
    "environ", "mem", "maps", "smaps", "cmdline", "status", "stat", "auxv", "io", "pagemap", "mountinfo", "comm",
    "root", "cwd", "exe", "fd/0", "ns/mnt",
]  # fmt: skip


def is_basic(name: str) -> bool:
    return name in BASICS or name.startswith(("LC_", "PYTHON")) or name.endswith("_NUM_THREADS")


@pytest.fixture(scope="module", autouse=True)
def secret() -> Iterator[str]:
    """A secret of the agent's, there before the place is."""
    os.environ["AGENT_SECRET"] = secrets.token_hex(16)
    yield os.environ["AGENT_SECRET"]
    del os.environ["AGENT_SECRET"]


@pytest.fixture(scope="module")
def keeper(secret: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process of the agent's, with the secret in its first environment, where /proc shows it."""
    with subprocess.Popen(["sleep", "600"], env=os.environ | {"AGENT_SECRET": secret}) as process:
        yield process
        process.kill()


@pytest.fixture(params=["agent", "its parent", "another process"])
def pid(request: pytest.FixtureRequest, keeper: subprocess.Popen[bytes]) -> int:
    """A process that is none of the run's."""
    return {"agent": os.getpid(), "its parent": os.getppid(), "another process": keeper.pid}[request.param]


@ISOLATED
def test_an_undeclared_variable_is_not_in_the_environment(place: Any) -> None:
    assert place.run(secret_attacks.environment, name="AGENT_SECRET").value() is None


@ISOLATED
def test_a_variable_set_later_is_not_in_the_environment(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATER_SECRET", "x")
    assert place.run(secret_attacks.environment, name="LATER_SECRET").value() is None


@ISOLATED
def test_only_basics_are_in_the_environment(place: Any) -> None:
    assert [name for name in place.run(secret_attacks.environment_names).value() if not is_basic(name)] == []


@ISOLATED
def test_only_basics_are_in_the_environment_that_the_kernel_kept(place: Any) -> None:
    assert [name for name in place.run(secret_attacks.first_environment).value() if not is_basic(name)] == []


@ISOLATED
def test_a_declared_variable_is_there_with_its_present_value(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("one", "two", "", "ž\n=x"):
        monkeypatch.setenv("SHOP_KEY", value)
        assert place.run(secret_attacks.environment, name="SHOP_KEY", env=("SHOP_KEY",)).value() == value


@ISOLATED
def test_a_declared_variable_that_is_not_set_is_not_set(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_KEY", raising=False)
    assert place.run(secret_attacks.environment, name="SHOP_KEY", env=("SHOP_KEY",)).value() is None


@ISOLATED
def test_one_tools_variable_is_not_seen_by_the_next_tool(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "x")
    assert place.run(secret_attacks.environment, name="SHOP_KEY", env=("SHOP_KEY",)).value() == "x"
    assert place.run(secret_attacks.environment, name="SHOP_KEY").value() is None


@ISOLATED
def test_programs_that_a_tool_starts_do_not_get_the_environment_either(place: Any, secret: str) -> None:
    assert secret not in place.run(process_attacks.run_program, arguments=["env"], subprocesses=True).value()


@ISOLATED
def test_the_agents_memory_is_not_in_the_runs(place: Any, secret: str) -> None:
    tail_hash = hashlib.sha256(secret[16:].encode()).hexdigest()
    assert secret_attacks.remembers(secret[:16], tail_hash), "this process does know it"
    assert place.run(secret_attacks.remembers, head=secret[:16], tail_hash=tail_hash).value() is False


@ISOLATED
@pytest.mark.parametrize("file", PRIVATE_FILES)
def test_another_process_cannot_be_looked_into(place: Any, pid: int, file: str) -> None:
    assert_denied(place.run(secret_attacks.look_into, pid=pid, file=file).value(), HIDDEN)


@ISOLATED
@pytest.mark.parametrize("way", ["root", "cwd", "fd", "task", "root/proc/1", "map_files"])
def test_another_process_is_no_way_into_its_folders(place: Any, pid: int, way: str) -> None:
    assert_denied(place.run(secret_attacks.enter, path=f"/proc/{pid}/{way}").value(), HIDDEN)


@ISOLATED
def test_the_secret_is_in_no_environment_that_can_be_read(place: Any, secret: str, keeper: Any) -> None:
    assert secret in Path(f"/proc/{keeper.pid}/environ").read_text(), "it is there to be found"
    found = place.run(secret_attacks.processes).value()
    assert [name for name, environment in found.items() if secret in environment] == []


@ISOLATED
def test_programs_cannot_look_into_another_process_either(place: Any, keeper: Any, secret: str) -> None:
    script = f"cat /proc/{keeper.pid}/environ /proc/1/environ /proc/*/environ 2>&1 || true"
    shown = place.run(process_attacks.run_program, arguments=["sh", "-c", script], subprocesses=True).value()
    assert secret not in shown


@ISOLATED
@pytest.mark.parametrize("limit", ["open before the place", "open now"])
def test_an_open_file_of_the_agents_is_not_open_in_the_run(place: Any, kept_open: int, limit: str) -> None:
    number = kept_open if limit == "open before the place" else os.dup2(kept_open, kept_open + 1, inheritable=True)
    found = place.run(secret_attacks.descriptors).value()
    assert "/etc/hostname" not in found.values()
    assert found.get(str(number), "socket:").startswith(("socket:", "pipe:"))


@pytest.fixture(scope="module", autouse=True)
def kept_open() -> Iterator[int]:
    """A file that the agent holds open and would let a child inherit."""
    opened = os.open("/etc/hostname", os.O_RDONLY)
    os.dup2(opened, 200, inheritable=True)
    yield 200
    for number in (opened, 200, 201):
        os.closerange(number, number + 1)
