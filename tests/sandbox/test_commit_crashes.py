"""A commit that is killed at any moment: afterwards the workspace is the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentspec.tools_sandbox.tiers import journal
from agentspec.tools_sandbox.tiers.overlay_tier import OverlayTier
from tests.sandbox import commit_tools
from tests.sandbox.crashing import Site, Sites, in_child, milestones, watch_changes
from tests.sandbox.support import OVERLAY
from tests.sandbox.trees import fast_folder, lay_out, timeless, tree_of

pytestmark = OVERLAY

STEP = int(os.environ.get("AGENTSPEC_TEST_STEP", "2"))
"""1: every moment. More: a sample, where time is short."""

Tree = dict[str, tuple[Any, ...]]


@pytest.fixture(scope="module")
def sites(place: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Sites of `commit_tools.rework`, which changes one of everything."""
    lay_out(place.workspace)
    with fast_folder(tmp_path_factory.mktemp("sites")) as folder:
        made = Sites(folder, place.workspace)
        made.run(commit_tools.rework)
        yield made


@pytest.fixture(scope="module")
def old(sites: Sites) -> Tree:
    return tree_of(sites.next().workspace)


@pytest.fixture(scope="module")
def new(sites: Sites) -> Tree:
    site = sites.next()
    assert in_child(site.commit)
    return tree_of(site.workspace)


def start_an_agent(*sites: Site) -> None:
    """An agent that declares a tool for each of these workspaces."""
    with contextlib.closing(OverlayTier(state=sites[0].state)) as tier:
        tier.prepare([site.tool() for site in sites])


def test_a_commit_is_the_plain_call(place: Any, new: Tree, tmp_path: Path) -> None:
    lay_out(tmp_path)
    with contextlib.chdir(tmp_path):
        commit_tools.rework()
    assert timeless(new) == timeless(tree_of(tmp_path))


def test_a_commit_that_is_killed_at_any_moment_is_made_whole_or_never_was(sites: Sites, old: Tree, new: Tree) -> None:
    irrevocable, total = milestones(sites.next())
    assert 1 < irrevocable < total - 50 and total > 150
    killed = [(number, sites.next()) for number in range(1, total + 1, STEP)]
    for number, site in killed:
        assert not in_child(site.commit, dying_before=number)
    for _, site in killed[::2]:  # the others leave it to the next agent's start
        site.recover()
        assert _without_ours(tree_of(site.workspace)) in (old, new)
    start_an_agent(*(site for _, site in killed))
    for number, site in killed:
        expected = old if number < irrevocable else new
        assert tree_of(site.workspace) == expected, f"killed before change {number} of {total}"
        assert site.left_over() == []


def _without_ours(tree: Tree) -> Tree:
    """What was only prepared goes with the next agent's start."""
    return {path: entry for path, entry in tree.items() if not path.startswith(".agentspec-")}


def test_a_recovery_that_is_killed_at_any_moment_is_brought_to_its_end(sites: Sites, new: Tree) -> None:
    irrevocable, total = milestones(sites.next())
    chance, killed, over = random.Random(7), [], False
    while not over:
        killed.append(sites.next())
        assert not in_child(killed[-1].commit, dying_before=chance.randint(irrevocable, total))
        over = in_child(killed[-1].recover, dying_before=1 + 2 * STEP * len(killed) if chance.random() < 0.9 else 1)
        over = over and 1 + 2 * STEP * len(killed) > total - irrevocable
        in_child(killed[-1].recover, dying_before=chance.randint(1, total - irrevocable))
    start_an_agent(*killed)
    for number, site in enumerate(killed, start=1):
        assert tree_of(site.workspace) == new, f"killed before change {1 + 2 * STEP * number}"
        assert site.left_over() == []


def test_a_recovery_that_dies_again_and_again_comes_to_its_end_at_last(sites: Sites, new: Tree) -> None:
    irrevocable, _ = milestones(sites.next())
    site, step = sites.next(), 1
    assert not in_child(site.commit, dying_before=irrevocable)
    while not in_child(site.recover, dying_before=step):
        step += 3
    assert step > 50
    assert tree_of(site.workspace) == new


def test_a_half_made_commit_waits_for_a_workspace_that_is_away(sites: Sites, old: Tree, new: Tree) -> None:
    irrevocable, total = milestones(sites.next())
    site = sites.next()
    assert not in_child(site.commit, dying_before=(irrevocable + total) // 2)
    away = site.workspace.rename(f"{site.workspace}-away")
    with contextlib.suppress(Exception):  # a drive that is not mounted yet
        start_an_agent(site)
    away.rename(site.workspace)
    start_an_agent(site)
    assert tree_of(site.workspace) in (old, new)
    assert site.left_over() == []


def test_a_commit_that_was_only_prepared_is_voided_by_a_later_change(sites: Sites, old: Tree) -> None:
    site = sites.next()
    assert not in_child(site.commit, dying_before=2)
    assert journal.pending(site.home) == []
    (site.workspace / "kept").write_text("a later change")
    start_an_agent(site)
    assert (site.workspace / "kept").read_text() == "a later change"
    assert tree_of(site.workspace).keys() == old.keys()
    assert site.left_over() == []


def _unsynced(site: Site, report: Path) -> None:
    """In a child: commit, and note which file's content had been forced to the disk when the journal took effect."""
    plain, synced, told = os.fsync, set(), False

    def note(event: str) -> None:
        nonlocal told
        if event == "sync":
            synced.add("all")
        if not told and journal.pending(site.home):
            told = True
            report.write_text(" ".join(map(str, synced)))

    def fsync(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        plain(fd)

    os.fsync = fsync  # type: ignore[assignment]
    watch_changes(note)
    site.commit()


def test_what_a_journal_promises_is_on_the_disk_before_it(sites: Sites, old: Tree, new: Tree, tmp_path: Path) -> None:
    assert in_child(lambda: _unsynced(sites.next(), tmp_path / "report"))
    synced = (tmp_path / "report").read_text().split()
    changed = [path for path, entry in new.items() if entry != old.get(path) and isinstance(entry[-1], bytes)]
    names = {new[path][3] for path in changed}
    assert "all" in synced or len(synced) >= len(names), "a power failure now would leave empty files"
