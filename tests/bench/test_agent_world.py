"""Cells in virtual time: nothing differs from the recording, and a run is the same each time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentspec.config import Engine
from agentspec.proxy.bench.agent import synthetic
from agentspec.proxy.bench.agent.cells import AGENTS, PROBE_S, REASONING_TOKENS, TOOL_S, Cell, Hits, grid
from agentspec.proxy.bench.agent.grid import measured, setting_of
from agentspec.proxy.bench.agent.hostile import HostilePredictor
from agentspec.proxy.bench.agent.machine import Costs
from agentspec.proxy.bench.agent.virtual_endpoint import Hostile
from agentspec.proxy.bench.agent.virtual_world import on

ALONE = Cell(0.5, 200, Hits.ORACLE, 0.1, 1)


def test_the_grid_is_every_combination_once():
    cells = list(grid())
    assert len(cells) == len(set(cells)) == len(TOOL_S) * len(REASONING_TOKENS) * len(Hits) * len(PROBE_S) * len(AGENTS)
    assert len({cell.name for cell in cells}) == len(cells)


@pytest.mark.parametrize("hits", Hits)
def test_answers_and_results_are_the_recorded_ones(hits):
    [one] = measured([replace(ALONE, hits=hits)], Costs())
    assert one.differences == 0
    assert one.off_s > 0


def test_a_cell_comes_out_the_same_each_time():
    cells = [replace(ALONE, agents=16, reasoning_tokens=20)]
    assert measured(cells, Costs()) == measured(cells, Costs())


def test_right_predictions_are_handed_over():
    [one] = measured([ALONE], Costs())
    assert one.outcomes["hit"] > 0
    assert one.outcomes.get("miss", 0) == 0
    assert one.on_s < one.off_s


def test_an_oracle_saves_no_more_than_could_be_saved():
    for one in measured([replace(ALONE, probe_s=probe_s) for probe_s in PROBE_S], Costs()):
        assert one.off_s - one.on_s <= one.could_save_s + 1e-6


def test_wrong_predictions_are_never_handed_over():
    [one] = measured([replace(ALONE, hits=Hits.NONE)], Costs())
    assert not one.outcomes.get("hit") and not one.outcomes.get("joined")


@pytest.mark.parametrize("way", Hostile)
def test_a_hostile_endpoint_changes_nothing_that_the_agent_sees(way):
    setting = replace(setting_of(ALONE, Costs()), engine=Engine.VLLM, probed=way)
    seen = on(setting, lambda endpoint, desk, usual: usual)
    assert seen.ledger.of("probes")
    assert sum(one.differences for one in seen.played) == 0


def test_a_hostile_predictor_changes_nothing_that_the_agent_sees():
    seen = on(setting_of(ALONE, Costs()), lambda endpoint, desk, usual: [HostilePredictor()])
    assert sum(one.differences for one in seen.played) == 0
    assert not {"hit", "joined"} & {bet["outcome"] for bet in seen.ledger.of("bets")}


def test_tasks_are_numbered_and_their_results_follow_from_the_arguments():
    one, again = synthetic.task(7, 20), synthetic.tasks(3, 20, 5)[2]
    assert one == again
    assert len([step for step in one.steps if step.calls]) == len(synthetic.PLAN)
    assert len([step for step in synthetic.task(7, 20, 2).steps if step.calls]) == 2
