"""Conformance: nothing on disk changes, by whatever way; and devices and other processes' files stay closed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import file_attacks
from tests.sandbox.attempts import ESCAPED
from tests.sandbox.support import DENIED, HIDDEN, ISOLATED, READ_ONLY, UNMAPPED, assert_denied, look_of

REFUSED = DENIED | UNMAPPED | {"EXDEV"}
FOLDERS = {
    "cwd": Path.cwd,
    "/tmp": lambda: Path("/tmp"),
    "/var/tmp": lambda: Path("/var/tmp"),
    "/dev/shm": lambda: Path("/dev/shm"),
}
CLOSED_DEVICES = [
    "vda", "sda", "nvme0n1", "xvda", "zram0", "loop0", "loop-control", "mem", "port", "kmsg", "kvm", "fuse", "net/tun",
    "vsock", "vhost-vsock", "ptmx", "tty", "console", "ttyS0", "tty0", "btrfs-control", "userfaultfd", "hwrng", "vcs",
    "vga_arbiter", "cpu_dma_latency", "autofs", "rtc0", "nvidia0", "nvidiactl", "dri/renderD128", "uinput", "rfkill",
]  # fmt: skip
CLOSED_FILES = [
    "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_ratio",
    "/proc/sys/kernel/hostname", "/proc/self/oom_score_adj", "/proc/self/uid_map", "/sys/power/state",
    "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/cgroup.procs",
    "/etc/passwd", "/etc/ld.so.preload",
]  # fmt: skip


@contextlib.contextmanager
def watched(parent: Path) -> Iterator[Path]:
    """A folder with files to attack, which must look the same at the end."""
    folder = Path(tempfile.mkdtemp(prefix=".agentspec-", dir=parent))
    try:
        for name in (file_attacks.VICTIM, "other"):
            (folder / name).write_text(f"the {name}'s content")
        (folder / "empty").mkdir()
        with contextlib.suppress(OSError):
            os.setxattr(folder / file_attacks.VICTIM, "user.kept", b"x")
        before = look_of(folder)
        yield folder
        assert look_of(folder) == before
    finally:
        while str(folder) in Path("/proc/self/mountinfo").read_text():
            subprocess.run(["umount", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.with_name(folder.name + "-moved"), ignore_errors=True)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A watched folder in the user's home."""
    with watched(Path.home()) as folder:
        yield folder


@pytest.fixture
def victim(outside: Path) -> Path:
    return outside / file_attacks.VICTIM


@ISOLATED
@pytest.mark.parametrize("how", file_attacks.CHANGES)
def test_nothing_in_the_users_home_can_be_changed(place: Any, outside: Path, how: str) -> None:
    assert_denied(place.run(file_attacks.change, how=how, folder=str(outside)).value(), REFUSED)


@ISOLATED
@pytest.mark.parametrize("where", FOLDERS)
def test_nothing_in_shared_folders_can_be_changed(place: Any, where: str) -> None:
    with watched(FOLDERS[where]()) as folder:
        outcome = place.run(file_attacks.change_all, folder=str(folder))
        private = place.name == "T2" and folder.is_relative_to("/dev/shm" if "shm" in where else "/tmp")
    assert private or ESCAPED not in outcome.value().values()


@READ_ONLY
@pytest.mark.parametrize("how", file_attacks.CHANGES)
def test_nothing_in_the_working_directory_can_be_changed(place: Any, how: str) -> None:
    with watched(place.workspace) as folder:
        verdict = place.run(file_attacks.change, how=how, folder=str(folder), in_workspace=True).value()
    assert_denied(verdict, REFUSED)


@ISOLATED
@pytest.mark.parametrize("subprocesses", [False, True])
def test_declaring_more_opens_no_file(place: Any, outside: Path, subprocesses: bool) -> None:
    verdicts = place.run(file_attacks.change_all, folder=str(outside), subprocesses=subprocesses, network=True).value()
    assert set(verdicts.values()) <= REFUSED


@ISOLATED
@pytest.mark.parametrize("subprocesses", [False, True])
def test_a_symbolic_link_is_no_way_out(place: Any, victim: Path, subprocesses: bool) -> None:
    link = place.workspace / "link"
    link.symlink_to(victim)
    try:
        run = place.run(file_attacks.write_through, path=str(link), in_workspace=True, subprocesses=subprocesses)
    finally:
        link.unlink()
    assert_denied(run.value())


@ISOLATED
@pytest.mark.parametrize("process", ["self", "agent", "1"])
@pytest.mark.parametrize("way", ["root{path}", "cwd/../../../../../../..{path}", "task/{pid}/root{path}"])
def test_proc_is_no_way_to_write_a_file(place: Any, victim: Path, process: str, way: str) -> None:
    pid = str(os.getpid()) if process == "agent" else process
    path = f"/proc/{pid}/" + way.format(path=victim, pid=pid)
    assert_denied(place.run(file_attacks.write_through, path=path).value(), HIDDEN)


@ISOLATED
def test_the_agents_root_is_no_way_to_read_a_file(place: Any, victim: Path) -> None:
    assert_denied(place.run(file_attacks.read_through, path=f"/proc/{os.getpid()}/root{victim}").value(), HIDDEN)


@READ_ONLY
def test_the_first_processs_root_is_no_way_to_read_a_file(place: Any, victim: Path) -> None:
    assert_denied(place.run(file_attacks.read_through, path=f"/proc/1/root{victim}").value(), HIDDEN)


@ISOLATED
def test_a_file_that_the_agent_has_open_cannot_be_written(place: Any, victim: Path) -> None:
    with victim.open("r+b") as file:
        path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        assert_denied(place.run(file_attacks.write_through, path=path).value(), HIDDEN)


@ISOLATED
@pytest.mark.parametrize("tool", [file_attacks.move_in, file_attacks.link_in], ids=["rename", "hard link"])
@pytest.mark.parametrize("direction", ["out of the workspace", "into the workspace"])
def test_a_file_cannot_be_moved_or_linked_across(place: Any, outside: Path, tool: Any, direction: str) -> None:
    inner = place.workspace / "inner"
    inner.write_text("x")
    ways = {
        "out of the workspace": (inner, outside / file_attacks.FRESH),
        "into the workspace": (outside / file_attacks.VICTIM, place.workspace / "stolen"),
    }
    source, target = map(str, ways[direction])
    verdict = place.run(tool, source=source, target=target, in_workspace=True).value()
    assert_denied(verdict, REFUSED)
    assert inner.read_text() == "x"
    assert not (place.workspace / "stolen").exists()


@ISOLATED
def test_a_files_handle_is_no_way_to_it(place: Any, outside: Path) -> None:
    assert_denied(place.run(file_attacks.by_handle, folder=str(outside)).value())


@ISOLATED
@pytest.mark.parametrize("subprocesses", [False, True])
def test_devices_are_closed(place: Any, subprocesses: bool) -> None:
    paths = [f"/dev/{name}" for name in CLOSED_DEVICES]
    assert place.run(file_attacks.opened_to_read, paths=paths, subprocesses=subprocesses).value() == []
    assert place.run(file_attacks.opened_to_write, paths=paths, subprocesses=subprocesses).value() == []


@ISOLATED
def test_switches_of_the_system_are_closed(place: Any) -> None:
    assert place.run(file_attacks.opened_to_write, paths=CLOSED_FILES).value() == []


@ISOLATED
@pytest.mark.parametrize("device", ["null", "zero", "vda", "tty", "ptmx"])
def test_devices_keep_their_modes_owners_and_times(place: Any, device: str) -> None:
    path = Path("/dev", device)
    if not path.exists():
        pytest.skip(f"no {path} here")
    before = path.stat()
    verdicts = place.run(file_attacks.touch_up, path=str(path)).value()
    assert set(verdicts) <= HIDDEN | UNMAPPED
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_ctime_ns) == (before.st_mode, before.st_uid, before.st_ctime_ns)


@ISOLATED
def test_the_usual_devices_work(place: Any) -> None:
    assert place.run(file_attacks.usual_devices).value() == [True, 9, "ENOSPC"]


@ISOLATED
def test_ordinary_files_can_be_read(place: Any, victim: Path) -> None:
    assert all(place.run(file_attacks.ordinary_files).value())
    assert place.run(file_attacks.read_through, path=str(victim)).value() == ESCAPED


@ISOLATED
def test_the_workspace_can_be_read(place: Any) -> None:
    (place.workspace / "readable").write_text("x")
    path = str(place.workspace / "readable")
    assert place.run(file_attacks.read_through, path=path, in_workspace=True).value() == ESCAPED


@ISOLATED
def test_a_file_that_may_be_read_may_be_locked(place: Any, victim: Path) -> None:
    assert place.run(file_attacks.lock, path=str(victim)).value() == ESCAPED
