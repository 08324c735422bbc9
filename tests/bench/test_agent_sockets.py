"""A tiny run on real sockets: the real proxy with an arm's predictors, the SDK, decorated tools in another process."""

from __future__ import annotations

from contextlib import ExitStack

from agentspec.effects import Effect
from agentspec.proxy.bench.agent import synthetic
from agentspec.proxy.bench.agent.arm_books import Books, tallied
from agentspec.proxy.bench.agent.arms import arms
from agentspec.proxy.bench.agent.real_cells import RealCell, run_corners
from agentspec.proxy.bench.agent.serve import Serving, arm_process
from agentspec.proxy.bench.agent.synthetic_tools import toolbox
from agentspec.proxy.bench.playing import played_ahead
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.processes import endpoint_process

PACE = Pace(tokens_per_s=2000, ttft_ms=50)
AHEAD = frozenset(name for name, effect in synthetic.EFFECTS.items() if effect is Effect.READ)


def test_corners_are_played_in_pairs_and_nothing_differs():
    told: list[str] = []
    cells = [RealCell(0.01, 20, "hits_0", 0.0, calls=2), RealCell(0.01, 20, "oracle", 0.0, agents=2, calls=2)]
    first, second = run_corners(cells, 0.1, PACE, told.append)
    assert len(first.ratios) == 2
    assert len(second.ratios) == 4
    assert first.differences == second.differences == 0
    assert len(told) == 2


def test_an_oracles_predictions_are_claimed_in_another_process(tmp_path):
    tasks = synthetic.tasks(2, 20)
    file = synthetic.written(tasks, tmp_path)
    ledger = f"sqlite:///{tmp_path}/ledger.sqlite3"
    with ExitStack() as stack:
        endpoint = stack.enter_context(endpoint_process([file], PACE))
        serving = Serving(arms(0.3)["oracle"], endpoint, ledger, [file], probe_s=0.0)
        proxy = stack.enter_context(arm_process(serving))
        for task in tasks:
            play = played_ahead(task, synthetic.library(), proxy, toolbox(task.task_id, 0.02))
            assert play.finished and not play.mismatches
    tally = tallied(Books.read(ledger), tasks, AHEAD)
    assert tally.calls == tally.exact == tally.claims == 10
    assert tally.committed > 0
    assert tally.requests == 14
