"""Conformance of the tiers with an overlay: a workspace changes when the run is committed, and only then."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import file_attacks, process_attacks, workspace_tools
from tests.sandbox.support import OVERLAY, eventually, look_of

pytestmark = OVERLAY


def lay_out(folder: Path) -> None:
    """What the tools of `workspace_tools` find."""
    (folder / "folder/inner").mkdir(parents=True)
    for name in ("one", "two", "folder/file", "folder/inner/file"):
        (folder / name).write_text(f"this is {name}")
    (folder / "to-one").symlink_to("one")
    (folder / "twin").write_text("this is a twin")
    os.link(folder / "twin", folder / "twin-again")


def clear(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.fixture
def tree(place: Any) -> Path:
    """The workspace, freshly laid out."""
    workspace: Path = place.workspace
    clear(workspace)
    lay_out(workspace)
    return workspace


@pytest.fixture
def run(place: Any) -> Callable[..., Any]:
    """run(tool, **arguments): a run in the workspace that has ended and is neither committed nor cancelled."""

    def ended(tool: Callable[..., Any], **arguments: Any) -> Any:
        started = place.start(tool, in_workspace=True, **arguments)
        started.wait(10.0)
        return started

    return ended


def content_of(folder: Path) -> dict[str, Any]:
    """What is in a folder, but for times and inodes."""
    return {os.fsdecode(path.relative_to(folder)): _content(path) for path in sorted(folder.rglob("*"))}


def _content(path: Path) -> tuple[int, Any]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return stat.S_IFLNK, os.readlink(path)
    return mode, path.read_bytes() if stat.S_ISREG(mode) else None


def plainly(how: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The same folder after a plain call of the same tool."""
    lay_out(folder)
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        workspace_tools.change(how)
    return content_of(folder)


@pytest.mark.parametrize("how", workspace_tools.CHANGES)
def test_a_change_is_invisible_until_committed_and_then_the_plain_calls(
    run: Any, tree: Path, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = look_of(tree)
    expected = plainly(how, tmp_path, monkeypatch)
    started = run(workspace_tools.change, how=how)
    assert started.wait(0).value() == sorted(os.listdir(tmp_path))
    assert look_of(tree) == before
    started.commit()
    assert content_of(tree) == expected


@pytest.mark.parametrize("how", workspace_tools.CHANGES)
def test_a_cancelled_change_leaves_nothing(run: Any, tree: Path, how: str) -> None:
    before = look_of(tree)
    run(workspace_tools.change, how=how).cancel()
    assert look_of(tree) == before


def test_what_was_not_changed_keeps_its_times(run: Any, tree: Path) -> None:
    before = (tree / "two").stat(), (tree / "folder/inner").stat()
    run(workspace_tools.change, how="overwrite").commit()
    after = (tree / "two").stat(), (tree / "folder/inner").stat()
    assert [(s.st_ino, s.st_mtime_ns, s.st_nlink) for s in after] == [
        (s.st_ino, s.st_mtime_ns, s.st_nlink) for s in before
    ]


@pytest.mark.parametrize("how", ["write", "append", "delete", "rename"])
def test_a_file_with_several_names_ends_as_after_a_plain_call_or_the_commit_is_refused(
    run: Any, tree: Path, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path)
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        workspace_tools.change_twin(how)
    before, started = content_of(tree), run(workspace_tools.change_twin, how=how)
    try:
        started.commit()
    except Exception:
        assert content_of(tree) == before
    else:
        assert content_of(tree) == content_of(tmp_path)


def test_one_run_does_not_see_anothers_uncommitted_changes(run: Any, tree: Path) -> None:
    first = run(workspace_tools.change, how="create")
    assert "new" not in run(workspace_tools.change, how="nothing").wait(0).value()
    first.cancel()


def test_a_run_sees_what_was_committed_before(run: Any, tree: Path) -> None:
    run(workspace_tools.change, how="create").commit()
    assert "new" in run(workspace_tools.change, how="nothing").wait(0).value()


def test_of_two_runs_at_once_only_one_can_be_committed(run: Any, tree: Path) -> None:
    first, second = run(workspace_tools.write, path="one", text="1"), run(workspace_tools.write, path="two", text="2")
    first.commit()
    with pytest.raises(Exception):  # noqa: B017
        second.commit()
    assert ((tree / "one").read_text(), (tree / "two").read_text()) == ("1", "this is two")


def _touched_secretly(tree: Path) -> None:
    """The same length and the same time: only the content tells, or the kernel's own time."""
    before = (tree / "two").stat()
    (tree / "two").write_text("THIS IS TWO")
    os.utime(tree / "two", ns=(before.st_atime_ns, before.st_mtime_ns))


MEANWHILE: dict[str, Callable[[Path], Any]] = {
    "a file changes": lambda tree: (tree / "two").write_text("other"),
    "a file changes secretly": _touched_secretly,
    "a deep file changes": lambda tree: (tree / "folder/inner/file").write_text("other"),
    "a file appears": lambda tree: (tree / "folder/new").write_text("x"),
    "a hidden file appears": lambda tree: (tree / ".git").mkdir(),
    "a file goes": lambda tree: (tree / "folder/file").unlink(),
    "a file is moved": lambda tree: (tree / "two").rename(tree / "three"),
    "a mode changes": lambda tree: (tree / "two").chmod(0o755),
    "a link changes": lambda tree: ((tree / "to-one").unlink(), (tree / "to-one").symlink_to("two")),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_any_change_since_the_start_refuses_the_commit(run: Any, tree: Path, what: str) -> None:
    started = run(workspace_tools.change, how="overwrite")
    MEANWHILE[what](tree)
    before = look_of(tree)
    with pytest.raises(Exception):  # noqa: B017
        started.commit()
    assert look_of(tree) == before


def test_a_folder_that_became_a_link_does_not_lead_the_commit_out(run: Any, tree: Path, tmp_path: Path) -> None:
    started = run(workspace_tools.change, how="overwrite deep")
    shutil.copytree(tree / "folder", tmp_path / "folder")
    shutil.rmtree(tree / "folder")
    (tree / "folder").symlink_to(tmp_path / "folder")
    with pytest.raises(Exception):  # noqa: B017
        started.commit()
    assert (tmp_path / "folder/inner/file").read_text() == "this is folder/inner/file"


def test_a_link_that_a_run_lays_leads_nowhere(run: Any, tree: Path, tmp_path: Path) -> None:
    started = run(workspace_tools.link_and_write, target=str(Path.home()), name=f".agentspec-{os.getpid()}")
    assert started.wait(0).value() == "denied"
    assert not (Path.home() / f".agentspec-{os.getpid()}").exists()
    started.cancel()


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_a_run_that_leaves_something_in_a_private_folder_is_void(run: Any, tree: Path, folder: str) -> None:
    started = run(workspace_tools.write_elsewhere, folder=folder)
    with pytest.raises(Exception):  # noqa: B017
        started.wait(0).value()
        started.commit()
    assert not Path(folder, "left").exists()


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_a_private_folder_may_be_used_in_passing(run: Any, tree: Path, folder: str) -> None:
    started = run(workspace_tools.pass_through, folder=folder)
    assert started.wait(0).value() == "x"
    started.commit()


def test_a_tool_that_fails_changes_nothing(run: Any, tree: Path) -> None:
    before = look_of(tree)
    started = run(workspace_tools.change_and_fail, how="overwrite")
    assert isinstance(started.wait(0).error, ValueError)
    started.cancel()
    assert look_of(tree) == before


def test_a_run_is_committed_once_and_not_after_it_was_cancelled(run: Any, tree: Path) -> None:
    started = run(workspace_tools.change, how="create")
    started.commit()
    started.cancel()
    assert (tree / "new").read_text() == "fresh"
    cancelled = run(workspace_tools.change, how="overwrite")
    cancelled.cancel()
    with pytest.raises(Exception):  # noqa: B017
        cancelled.commit()
    assert (tree / "one").read_text() == "this is one"


def test_a_run_that_is_killed_while_it_writes_leaves_nothing(place: Any, tree: Path) -> None:
    before = look_of(tree)
    started = place.start(file_attacks.scribble, folder=".", in_workspace=True)
    time.sleep(0.3)
    started.cancel()
    assert look_of(tree) == before


def test_programs_work_in_the_workspace(run: Any, tree: Path) -> None:
    arguments = ["sh", "-c", "cp one copy && mv two renamed && rm -r folder && ls"]
    started = run(process_attacks.run_program, arguments=arguments, subprocesses=True)
    assert started.wait(0).value().split() == ["copy", "one", "renamed", "to-one", "twin", "twin-again"]
    assert (tree / "folder").is_dir()
    started.commit()
    assert sorted(os.listdir(tree)) == ["copy", "one", "renamed", "to-one", "twin", "twin-again"]


def test_a_reader_sees_each_file_whole_while_a_commit_goes_on(run: Any, tree: Path) -> None:
    (tree / "one").write_bytes(b"a" * 2_000_000)
    started = run(workspace_tools.write, path="one", text="b" * 2_000_000)
    seen: set[bytes] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.add((tree / "one").read_bytes())

    reader = threading.Thread(target=watch)
    reader.start()
    started.commit()
    eventually(lambda: b"b" * 2_000_000 in seen, "the change is seen")
    stop.set()
    reader.join()
    assert seen <= {b"a" * 2_000_000, b"b" * 2_000_000}
