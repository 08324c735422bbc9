"""The bench finds nothing wrong with the product, and finds whatever we break in it on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentspec import channel
from agentspec.proxy.bench.claims.bench import OUTCOMES, Report, play, run
from agentspec.proxy.bench.claims.drive import Drive
from agentspec.proxy.bench.claims.record import Record
from agentspec.proxy.bench.claims.world import ORDERS, USERS, World
from agentspec.tools_sandbox import handover, runtime, tool
from agentspec.tools_sandbox.claim_table import ClaimTable, PendingRun
from agentspec.tools_sandbox.handover import Handed
from agentspec.tools_sandbox.runtime import Runtime
from agentspec.tools_sandbox.tool import DeclaredTool

OPERATIONS = 12_000
SEEDS = (1, 2, 3)

Break = Callable[[pytest.MonkeyPatch], None]


Often = tuple[str, int] | None
"""A step that is taken far more often than usual: once in so many."""


def played(drive: Drive, operations: int, often: Often = None) -> Record:
    """A run that ends at the first wrong result."""

    def over(record: Record) -> bool:
        if often is not None and record.steps % often[1] == 0:
            drive.act(often[0])
        return bool(record.wrong)

    return play(drive, operations, over)


def no_voiding(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClaimTable, "_void", lambda *_: [])


def no_blocking_and_no_voiding_at_the_end(patch: pytest.MonkeyPatch) -> None:
    def end_write(self: Any, ticket: int) -> list[PendingRun]:
        self._writes.pop(ticket, None)
        return []

    patch.setattr(ClaimTable, "_writing", lambda *_: False)
    patch.setattr(ClaimTable, "end_write", end_write)


def no_age(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingRun, "stale_at", lambda *_: False)


def taken_runs_stay(patch: pytest.MonkeyPatch) -> None:
    take = ClaimTable.take

    def and_stay(self: Any, *args: Any) -> Any:
        run, stale = take(self, *args)
        if run is not None:
            self._runs[run.bet] = run
        return run, stale

    patch.setattr(ClaimTable, "take", and_stay)


def any_owner(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeclaredTool, "owner", lambda *_: None)


def any_surroundings(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeclaredTool, "same_surroundings", lambda *_: True)


def any_arguments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingRun, "_same_arguments", lambda *_: True)


def nothing_depends_by_argument(patch: pytest.MonkeyPatch) -> None:
    depends_on = DeclaredTool.depends_on
    patch.setattr(
        DeclaredTool, "depends_on", lambda self, a: frozenset() if self.word.reads.by_argument else depends_on(self, a)
    )


def no_cancel(patch: pytest.MonkeyPatch) -> None:
    receive = Runtime.receive
    patch.setattr(Runtime, "receive", lambda self, m: None if isinstance(m, channel.Cancel) else receive(self, m))


def any_grant(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handover, "_granted", lambda *_: channel.Grant(0, True))


def writes_in_one_runtime_only(patch: pytest.MonkeyPatch) -> None:
    snapshot = tool.snapshot
    patch.setattr(tool, "snapshot", lambda items: snapshot(items)[: 1 if items is tool.RUNTIMES else None])


def nothing_is_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(handover, "_outcome", lambda claim, run, was_done: Handed(run.future.result()))


def a_lost_channel_loses_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runtime, "lost", lambda self: None)


def a_child_keeps_its_parents_runs(patch: pytest.MonkeyPatch) -> None:
    def forget_everything(self: Any) -> None:
        self._link = None
        self.tiers.forget_everything()

    patch.setattr(Runtime, "forget_everything", forget_everything)


def a_new_runtime_knows_no_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runtime, "enter", lambda new, follows: tool.RUNTIMES.add(new))


@pytest.mark.parametrize(
    ("broken", "often"),
    [
        (no_voiding, None),
        (no_blocking_and_no_voiding_at_the_end, None),
        (no_age, ("clock", 20)),
        (taken_runs_stay, None),
        (any_owner, None),
        (any_surroundings, None),
        (any_arguments, None),
        (nothing_depends_by_argument, None),
        (no_cancel, ("cancel", 20)),
        (any_grant, None),
        (writes_in_one_runtime_only, None),
        (nothing_is_committed, None),
        (a_lost_channel_loses_nothing, ("lose", 20)),
        (a_child_keeps_its_parents_runs, ("fork", 20)),
        (a_new_runtime_knows_no_writes, ("replace", 150)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_broken_on_purpose_is_found(broken: Break, often: Often, monkeypatch: pytest.MonkeyPatch) -> None:
    drives = [Drive(seed) for seed in SEEDS]
    broken(monkeypatch)
    assert any(played(drive, OPERATIONS, often).wrong for drive in drives)


@pytest.mark.parametrize("often", [None, "clock", "cancel", "interrupt", "lose", "fork", "replace"])
def test_nothing_is_wrong_with_what_is_not_broken(often: str | None) -> None:
    record = played(Drive(4), 6_000, None if often is None else (often, 20))
    assert record.wrong == [], record.trail


def test_a_seed_decides_everything() -> None:
    one, again, other = (play(Drive(seed), 2_000) for seed in (7, 7, 8))
    assert [entry[:2] for entry in one.log] == [entry[:2] for entry in again.log] != [entry[:2] for entry in other.log]
    assert one.counts == again.counts


def test_what_was_wrong_is_told_with_its_seed_and_the_operations_before(monkeypatch: pytest.MonkeyPatch) -> None:
    any_surroundings(monkeypatch)
    told: list[str] = []
    report = run(operations=2_000, seed=5, progress=told.append)
    assert report.value("wrong_results")
    assert "--seed 5 --operations 2000" in told[0] and "somebody else's" in told[1]
    assert len(told) > 10


def test_the_report_has_its_fixed_figures() -> None:
    report = run(operations=3_000)
    assert isinstance(report, Report)
    assert {"wrong_results", "operations", "served_share", "schedules", *OUTCOMES} <= {f.name for f in report.figures}
    assert report.value("wrong_results") == 0
    assert report.value("operations") >= 3_000
    assert report.value("served_share") > 0
    json.loads(report.as_json())


def test_the_world_knows_what_a_run_could_have_seen() -> None:
    world = World()
    before = world.moment
    world.change(ORDERS)
    world.change(USERS)
    assert world.possible([(ORDERS, 0), (USERS, 1)], before, world.moment), "read around the writes"
    assert not world.possible([(USERS, 1), (ORDERS, 0)], before, world.moment), "orders had changed by then"
    assert not world.possible([(ORDERS, 0)], world.moment, world.moment), "that was before the call"
    assert not world.possible([(ORDERS, 2)], before, world.moment), "nobody wrote that"
