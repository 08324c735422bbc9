"""The whole grid in virtual time, in several processes; a cell comes out the same in each run and in any process."""

from __future__ import annotations

import gc
import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby

from agentspec.protocols import Speculator
from agentspec.proxy.bench.agent import synthetic
from agentspec.proxy.bench.agent.cells import CORES, DECLARED, Cell, Hits, Measured, could_save_s, grid
from agentspec.proxy.bench.agent.kits import ShopKit
from agentspec.proxy.bench.agent.machine import Costs
from agentspec.proxy.bench.agent.predictors import Answers, DeclaredProbe, Oracle, Wrong
from agentspec.proxy.bench.agent.virtual_endpoint import Script, VirtualEndpoint
from agentspec.proxy.bench.agent.virtual_world import OneMemory, Predicts, Seen, Setting, off, on, past_of
from agentspec.proxy.desk import Desk
from agentspec.proxy.replay.recordings import Recording

Progress = Callable[[str], None]

ALONE_TASKS = 4
"""That one agent plays, one after the other; several agents play one each."""
PAST_TASKS = 12
"""That memory has learnt before, none of which is played."""


def run_grid(pool: Executor, costs: Costs, seed: int = 1, progress: Progress = lambda line: None) -> list[Measured]:
    """Measure every cell, in the grid's order."""
    wanted = list(dict.fromkeys(cell.distinct for cell in grid()))
    found: dict[Cell, Measured] = {}
    running = [pool.submit(measured, cells, costs, seed) for cells in _groups(wanted)]
    for nth, done in enumerate(as_completed(running), 1):
        made = done.result()
        found |= {one.cell: one for one in made}
        worst = max(made, key=lambda one: one.ratio)
        progress(f"{nth}/{len(running)} {worst.cell.name}: ratio {worst.ratio:.4f}, the worst of {len(made)}")
    return [replace(found[cell.distinct], cell=cell) for cell in grid()]


@contextmanager
def executor(jobs: int) -> Iterator[Executor]:
    """Processes for work that is all CPU."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _settle_in) as pool:
        yield pool


def _settle_in() -> None:
    """Collect seldom, as the server does: a short run makes little to collect. What proxies warn of in virtual time is
    no news to whoever waits for the figures.
    """
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)
    logging.getLogger("agentspec").setLevel(logging.ERROR)


def _groups(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells that share the direct arm; the longest to compute first."""

    def shape(cell: Cell) -> tuple[int, int, float]:
        return -cell.agents, -cell.reasoning_tokens, cell.tool_s

    return [list(group) for _, group in groupby(sorted(cells, key=shape), key=shape)]


def measured(cells: Sequence[Cell], costs: Costs, seed: int = 1) -> list[Measured]:
    """Measure cells that share the direct arm."""
    setting = setting_of(cells[0], costs, seed)
    direct = off(setting)
    return [_measured(cell, setting, direct) for cell in cells]


def setting_of(cell: Cell, costs: Costs, seed: int = 1) -> Setting:
    """What is played in a cell."""
    first = PAST_TASKS * seed
    tasks: list[list[Recording]]
    if cell.agents == 1:
        tasks = [synthetic.tasks(ALONE_TASKS, cell.reasoning_tokens, first)]
    else:
        tasks = [[task] for task in synthetic.tasks(cell.agents, cell.reasoning_tokens, first)]
    script = Script([task for one in tasks for task in one])
    return Setting(tasks, script, ShopKit(cell.tool_s), CORES, costs, seed=seed)


def _measured(cell: Cell, setting: Setting, direct: Seen) -> Measured:
    memory = memory_of_past(cell.reasoning_tokens) if cell.hits is Hits.RECALL else None
    ahead = on(setting, _predicts(cell, setting.seed), memory)
    calls = [call for one in direct.played for call in one.calls]
    return Measured(
        cell,
        direct.seconds,
        ahead.seconds,
        sum(could_save_s(call, cell.tool_s, cell.probe_s) for call in calls),
        sum(one.differences for one in (*direct.played, *ahead.played)),
        Counter(bet["outcome"] for bet in ahead.ledger.of("bets")),
    )


def memory_of_past(reasoning_tokens: int) -> OneMemory:
    """A memory that has learnt tasks of the same kind, none of those that are played."""
    library = synthetic.library()
    return OneMemory([past_of(task, library) for task in synthetic.tasks(PAST_TASKS, reasoning_tokens)])


def _predicts(cell: Cell, seed: int) -> Predicts:
    def predicts(endpoint: VirtualEndpoint, desk: Desk, usual: Sequence[Speculator]) -> Sequence[Speculator]:
        answers = Answers(endpoint.script.index, seed)
        match cell.hits:
            case Hits.NONE:
                return [Wrong(cell.probe_s)]
            case Hits.DECLARED:
                return [DeclaredProbe(answers, DECLARED, cell.probe_s, desk)]
            case Hits.ORACLE:
                return [Oracle(answers, cell.probe_s)]
        return usual

    return predicts
