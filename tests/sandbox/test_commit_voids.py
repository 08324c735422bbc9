"""A run counts only in the workspace that it started from: any change since, by anyone, at any moment, voids it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentspec.errors import ToolRefused
from tests.sandbox import commit_tools
from tests.sandbox.crashing import fast_place
from tests.sandbox.places import Place
from tests.sandbox.support import eventually, look_of
from tests.sandbox.trees import clear, lay_out, tree_of


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with fast_place(tmp_path_factory.mktemp("place")) as opened:
        yield opened


@pytest.fixture
def tree(place: Any) -> Iterator[Path]:
    clear(place.workspace)
    lay_out(place.workspace)
    yield place.workspace
    assert [path for path in place.tier.home(str(place.workspace)).iterdir() if path.is_dir()] == []


def rewritten_in_secret(path: Path) -> None:
    """The same size, the same time, the same inode."""
    before = path.stat()
    path.write_text(path.read_text().upper())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swapped(one: Path, two: Path) -> None:
    one.rename(two.with_name("between"))
    two.rename(one)
    two.with_name("between").rename(two)


def changed_and_reverted(path: Path) -> None:
    before, content = path.stat(), path.read_bytes()
    path.write_bytes(b"something else")
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def retargeted(path: Path) -> None:
    path.unlink()
    path.symlink_to("modified")


def made_and_removed(path: Path) -> None:
    path.write_text("x")
    path.unlink()


CHANGES: dict[str, Callable[[Path], Any]] = {
    "content": lambda tree: (tree / "kept").write_text("other"),
    "content of what the run changes too": lambda tree: (tree / "new").write_text("other"),
    "appended": lambda tree: (tree / "large").open("ab").write(b"x"),
    "rewritten in secret": lambda tree: rewritten_in_secret(tree / "kept"),
    "changed and reverted": lambda tree: changed_and_reverted(tree / "deep/a/b/c/d/file"),
    "mode": lambda tree: (tree / "kept").chmod(0o600),
    "mode of a folder": lambda tree: (tree / "deep/a").chmod(0o700),
    "mode of the workspace": lambda tree: tree.chmod(0o700),
    "time": lambda tree: os.utime(tree / "kept"),
    "new file": lambda tree: (tree / "another").touch(),
    "new file deep down": lambda tree: (tree / "deep/a/b/c/d/another").touch(),
    "new file in .git": lambda tree: ((tree / ".git").mkdir(), (tree / ".git/HEAD").write_text("ref: main")),
    "new empty folder": lambda tree: (tree / "another").mkdir(),
    "removed file": lambda tree: (tree / "kept").unlink(),
    "removed folder": lambda tree: (tree / "empty").rmdir(),
    "made and removed": lambda tree: made_and_removed(tree / "passing"),
    "renamed": lambda tree: (tree / "kept").rename(tree / "kept-elsewhere"),
    "two swapped": lambda tree: swapped(tree / "kept", tree / "timed"),
    "two folders swapped": lambda tree: swapped(tree / "gone", tree / "deep"),
    "symlink retargeted": lambda tree: retargeted(tree / "link"),
    "symlink replaced by the same": lambda tree: retargeted(tree / "link-again"),
    "attribute": lambda tree: os.setxattr(tree / "kept", "user.test", b"1"),
    "attribute of the workspace": lambda tree: os.setxattr(tree, "user.test", b"1"),
    "hard link inside": lambda tree: os.link(tree / "kept", tree / "kept-too"),
    "hard link from outside": lambda tree: os.link(tree / "kept", tree.with_name("outside")),
    "a fifo": lambda tree: os.mkfifo(tree / "another"),
    "written through a hard link": lambda tree: (tree / "deep/twin").write_text("this is a TWIN"),
    "another workspace in its place": lambda tree: (tree.rename(f"{tree}-old"), lay_out(tree)),
}


@pytest.fixture
def change(tree: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    (tree / "link-again").symlink_to("modified")
    yield lambda: CHANGES[request.param](tree)
    tree.with_name("outside").unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        clear(Path(f"{tree}-old"))
        Path(f"{tree}-old").rmdir()


SOME = ["content", "rewritten in secret", "changed and reverted", "new file in .git", "two folders swapped"]
WRITE = "Path('new').write_text('new')"
READ = "assert Path('kept').read_text()"


@pytest.mark.parametrize("change", CHANGES, indirect=True)
def test_a_change_after_the_run_voids_it_even_if_it_only_read(
    place: Any, tree: Path, change: Callable[[], Any]
) -> None:
    started = place.start(commit_tools.run_python, code=READ, in_workspace=True)
    started.wait(10.0).value()
    change()
    assert_void(started, tree)


@pytest.mark.parametrize("change", SOME, indirect=True)
def test_a_change_while_the_run_goes_on_voids_it(place: Any, tree: Path, change: Callable[[], Any]) -> None:
    waiting = f"{WRITE}; import time; time.sleep(0.08)"
    started = place.start(commit_tools.run_python, code=waiting, in_workspace=True)
    eventually(lambda: list(place.tier.home(str(tree)).glob("*/upper/new")), "the run has begun")
    change()
    with contextlib.suppress(Exception):
        started.wait(10.0).value()
    assert_void(started, tree)


def assert_void(started: Any, tree: Path) -> None:
    before = look_of(tree)
    with pytest.raises(ToolRefused):
        started.commit()
    assert look_of(tree) == before


def test_of_runs_from_one_state_only_the_first_to_be_committed_counts(place: Any, tree: Path) -> None:
    codes = [f"Path('new-{number}').write_text('x')" for number in range(3)]
    started = [place.start(commit_tools.run_python, code=code, in_workspace=True) for code in codes]
    for run in started:
        run.wait(10.0).value()
    started[1].commit()
    for run in (started[0], started[2]):
        assert_void(run, tree)
    assert [path.name for path in tree.glob("new-*")] == ["new-1"]


def test_of_runs_that_are_committed_at_one_moment_only_one_counts(place: Any, tree: Path) -> None:
    code = "open('kept', 'a').write('+')"
    for _ in range(4):
        started = [place.start(commit_tools.run_python, code=code, in_workspace=True) for _ in range(4)]
        for run in started:
            run.wait(10.0).value()
        before, outcomes = (tree / "kept").read_text(), list[str]()
        threads = [threading.Thread(target=_commit, args=(run, outcomes)) for run in started]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["committed", "refused", "refused", "refused"]
        assert (tree / "kept").read_text() == before + "+"


def _commit(run: Any, outcomes: list[str]) -> None:
    try:
        run.commit()
        outcomes.append("committed")
    except ToolRefused:
        outcomes.append("refused")


def test_a_run_that_is_only_read_from_is_not_voided_by_readers(place: Any, tree: Path) -> None:
    started = place.start(commit_tools.run_python, code=WRITE, in_workspace=True)
    started.wait(10.0).value()
    tree_of(tree)
    started.commit()
    assert (tree / "new").read_text() == "new"


def test_runs_one_after_the_other_all_count(place: Any, tree: Path) -> None:
    for number in range(5):
        started = place.start(commit_tools.run_python, code=f"open('log', 'a').write('{number}')", in_workspace=True)
        started.wait(10.0).value()
        started.commit()
    assert (tree / "log").read_text() == "01234"
