"""The child that commits dies or dawdles while the agent lives: what the agent is told is what has happened."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentspec.tools_sandbox.tiers import overlay_tier
from tests.sandbox import commit_faults, commit_tools
from tests.sandbox.crashing import Site, Sites, fast_place, in_child, milestones
from tests.sandbox.places import Place
from tests.sandbox.trees import lay_out, tree_of

STEP = int(os.environ.get("AGENTSPEC_TEST_STEP", "1"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with fast_place(tmp_path_factory.mktemp("place")) as opened:
        yield opened


@pytest.fixture
def order(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where to write what the committing child shall do."""
    monkeypatch.setenv(commit_faults.VARIABLE, str(tmp_path / "order"))
    lay_out_again(place.workspace)
    return tmp_path / "order"


def lay_out_again(workspace: Path) -> None:
    shutil.rmtree(workspace)
    workspace.mkdir()
    for name in ("file", "removed", "other"):
        (workspace / name).write_text("old")


def committed(place: Any, order: Path, what: str) -> bool:
    """Run, and commit with that order; whether the agent is told that it happened."""
    order.unlink(missing_ok=True)
    started = place.start(commit_faults.append, path="file", text="+", in_workspace=True, env={commit_faults.VARIABLE})
    started.wait(10.0).value()
    order.write_text(what)
    try:
        started.commit()
    except Exception:
        return False
    finally:
        order.unlink()
    return True


def assert_told_the_truth(place: Any, told: bool) -> None:
    names = ["file", "file+", "file.log", "other"] if told else ["file", "other", "removed"]
    assert sorted(os.listdir(place.workspace)) == [name.replace("file+", "file-+") for name in sorted(names)]
    assert (place.workspace / "file").read_text() == ("old+" if told else "old")
    assert [path for path in place.tier.home(str(place.workspace)).iterdir() if path.is_dir()] == []


def test_a_commit_whose_child_dies_is_refused_or_made_as_the_agent_is_told(place: Any, order: Path) -> None:
    answers = []
    while len(answers) < 100:
        lay_out_again(place.workspace)
        answers.append(committed(place, order, f"kill {1 + STEP * len(answers)}"))
        assert_told_the_truth(place, answers[-1])
        if answers[-3:] == [True] * 3 and STEP * len(answers) > 60:
            break
    assert answers[0] is False and answers == sorted(answers)


@pytest.mark.parametrize("moment", [1, 20, 30])
def test_a_commit_that_takes_too_long_does_not_happen_after_it_was_refused(
    place: Any, order: Path, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay_tier, "_COMMIT_LIMIT_S", 0.3)
    told = committed(place, order, f"wait {moment}")
    time.sleep(0.4)  # it would have happened by now
    assert_told_the_truth(place, told)


@pytest.fixture
def obstructed(place: Any, tmp_path: Path) -> Iterator[Sites]:
    """Sites of a commit that cannot be made: one of the last changes is not permitted."""
    model = tmp_path / "model"
    lay_out(model)
    (model / "zz/closed").mkdir(parents=True)
    (model / "zz/closed/file").write_text("x")
    sites = Sites(tmp_path / "sites", model)
    sites.run(commit_tools.run_python, code=REWORK)
    yield sites
    for path in (tmp_path / "sites/workspaces").iterdir():
        obstruct(path, False)


REWORK = "from tests.sandbox.commit_tools import rework; rework(); shutil.rmtree('zz')"


def obstruct(workspace: Path, yes: bool) -> None:
    """Make it impossible to remove the folder `zz`, or possible again."""
    target = workspace / "zz"
    if not target.exists():
        return
    if os.getuid() == 0:
        if (done := subprocess.run(["chattr", "+i" if yes else "-i", str(target)], check=False)).returncode:
            pytest.skip(f"no immutable files here: chattr ended in {done.returncode}")
    else:
        target.chmod(0o555 if yes else 0o755)


def obstructed_site(sites: Sites) -> Site:
    site = sites.next()
    obstruct(site.workspace, True)
    return site.rested()


def refused(site: Site) -> None:
    with pytest.raises(OSError):
        site.commit()


def test_a_commit_that_turns_out_to_be_impossible_leaves_everything_as_it_was(obstructed: Sites) -> None:
    site = obstructed_site(obstructed)
    before = tree_of(site.workspace)
    assert in_child(lambda: refused(site))
    assert tree_of(site.workspace) == before


def test_an_undoing_that_is_killed_at_any_moment_ends_as_if_nothing_had_been(obstructed: Sites, tmp_path: Path) -> None:
    site, number, step = obstructed_site(obstructed), 1, 4 + 3 * STEP
    obstruct(site.workspace, False)
    free = site.rested()
    old = tree_of(free.workspace)
    number, _ = milestones(free)
    new = tree_of(free.workspace)
    while True:
        site = obstructed_site(obstructed)
        over = in_child(lambda site=site: refused(site), dying_before=number)  # type: ignore[misc]
        obstruct(site.workspace, False)  # and now it would be possible
        site.recover()
        assert _without_ours(tree_of(site.workspace)) in (old, new), f"killed before change {number}"
        if over:
            break
        number += step


def _without_ours(tree: dict[str, Any]) -> dict[str, Any]:
    return {path: entry for path, entry in tree.items() if not path.startswith(".agentspec-")}
