"""Corners of the grid on real sockets: the real proxy's process, the SDK, decorated tools in the agent's process.

Each task is played twice in a row by the same process, straight to the endpoint and through the proxy; which comes
first alternates. Where there are several agents each is a process, and all are under way at once.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from statistics import median

from agentspec.proxy.bench.agent import synthetic
from agentspec.proxy.bench.agent.arms import arms
from agentspec.proxy.bench.agent.cells import DECLARED
from agentspec.proxy.bench.agent.serve import Serving, arm_process
from agentspec.proxy.bench.agent.synthetic_tools import toolbox
from agentspec.proxy.bench.playing import Ahead, Direct
from agentspec.proxy.replay.agent import Play
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.processes import endpoint_process
from agentspec.proxy.replay.recordings import Recording

PAST_TASKS = 12
_STAGGER_S = 1.0
"""Of several agents each begins a task within this time, at random."""
_AT_ONCE = 4
"""Corners whose proxies are started together."""


@dataclass(frozen=True, slots=True)
class RealCell:
    """One corner.

    Attributes:
        computing: whether the tools compute, and so hold the interpreter, or sleep.
        calls: how many calls of the plan each task has.
    """

    tool_s: float
    reasoning_tokens: int
    arm: str
    probe_s: float
    agents: int = 1
    computing: bool = False
    calls: int = 4

    @property
    def name(self) -> str:
        """How it is called in reports."""
        work = "computing" if self.computing else "sleeping"
        shape = f"tool_{self.tool_s * 1000:.0f}ms_{work}.reasoning_{self.reasoning_tokens}"
        return f"{shape}.{self.arm}.probe_{self.probe_s * 1000:.0f}ms.agents_{self.agents}"

    @property
    def task_s(self) -> float:
        """About what a task takes."""
        return (self.calls + 1) * (0.3 + self.reasoning_tokens / 200) + self.calls * self.tool_s


PROBE = f"probe_declared_{DECLARED * 100:.0f}"
CORNERS = (
    RealCell(0.05, 20, "hits_0", 0.1),
    RealCell(0.05, 20, "hits_0", 0.1, computing=True),
    RealCell(0.05, 20, "hits_0", 0.1, agents=16),
    RealCell(0.05, 20, "recall", 0.1),
    RealCell(0.05, 200, PROBE, 0.1),
    RealCell(0.5, 20, "hits_0", 4.0),
    RealCell(0.5, 200, "hits_0", 0.1),
    RealCell(0.5, 200, "oracle", 0.1),
    RealCell(0.5, 1000, "recall", 0.1, calls=3),
    RealCell(3.0, 20, "oracle", 0.1, calls=3),
    RealCell(3.0, 200, PROBE, 1.0, calls=3),
    RealCell(0.5, 200, "hits_0", 0.1, computing=True),
    RealCell(0.5, 200, "oracle", 0.1, computing=True),
    RealCell(0.5, 200, "hits_0", 0.1, agents=16),
    RealCell(0.5, 200, "recall", 0.1, agents=16),
    RealCell(0.05, 200, "hits_0", 0.1, agents=16, computing=True),
)
QUICK = tuple(replace(corner, calls=2) for corner in CORNERS[:3])


@dataclass(frozen=True, slots=True)
class Pairs:
    """What was measured in a corner: seconds of each task, direct and ahead, and how many things differed."""

    cell: RealCell
    off_s: Sequence[float]
    on_s: Sequence[float]
    differences: int

    @property
    def ratios(self) -> list[float]:
        """Of each pair."""
        return [on_s / off_s for on_s, off_s in zip(self.on_s, self.off_s, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of the pairs."""
        return median(self.ratios)


@dataclass(frozen=True, slots=True)
class _Stage:
    """A corner made ready: its tasks, those that warm it up, and where endpoint and proxy are."""

    cell: RealCell
    tasks: Sequence[Recording]
    warm_up: Sequence[Recording]
    endpoint: str
    proxy: str


def run_corners(
    cells: Sequence[RealCell], seconds: float, pace: Pace, progress: Callable[[str], None] = lambda line: None
) -> list[Pairs]:
    """Measure corners one after the other, each for about so many seconds and two pairs for each agent at least."""
    found: list[Pairs] = []
    with agents(1) as one, agents(max(cell.agents for cell in cells)) as several:
        for at in range(0, len(cells), _AT_ONCE):
            with _stages(cells[at : at + _AT_ONCE], seconds, pace) as stages:
                for stage in stages:
                    pairs = _run(stage, one if stage.cell.agents == 1 else several)
                    found.append(pairs)
                    told = f"ratio {pairs.ratio:.4f}, the median of {len(pairs.ratios)} pairs"
                    progress(f"{len(found)}/{len(cells)} {stage.cell.name}: {told}")
    return found


def _run(stage: _Stage, pool: Executor) -> Pairs:
    list(pool.map(_pair, range(len(stage.warm_up)), stage.warm_up, repeat(stage)))
    pairs = list(pool.map(_pair, range(len(stage.tasks)), stage.tasks, repeat(stage)))
    differences = sum(len(play.mismatches) for pair in pairs for play in pair)
    return Pairs(
        stage.cell, [direct.seconds for direct, _ in pairs], [ahead.seconds for _, ahead in pairs], differences
    )


@contextmanager
def _stages(cells: Sequence[RealCell], seconds: float, pace: Pace) -> Iterator[list[_Stage]]:
    """Endpoint and proxies of some corners. Each has a proxy of its own, which starts knowing nothing of the others."""
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as name, ExitStack() as stack:
        tasks = {cell: _tasks(cell, seconds, 1000 * nth) for nth, cell in enumerate(cells, 1)}
        files = [
            synthetic.written([*warm_up, *played], _folder(name, f"played-{nth}"))
            for nth, (warm_up, played) in enumerate(tasks.values())
        ]
        endpoint = stack.enter_context(endpoint_process(files, pace))

        def proxy(nth: int, cell: RealCell) -> str:
            past = synthetic.tasks(PAST_TASKS, cell.reasoning_tokens, 0, cell.calls)
            taught = [synthetic.written(past, _folder(name, f"past-{nth}"))]
            database = f"sqlite:///{name}/ledger-{nth}.sqlite3"
            serving = Serving(arms(DECLARED)[cell.arm], endpoint, database, files, cell.probe_s, DECLARED, taught)
            return stack.enter_context(arm_process(serving))

        with ThreadPoolExecutor() as pool:
            proxies = list(pool.map(proxy, range(len(cells)), cells))
        yield [
            _Stage(cell, played, warm_up, endpoint, url)
            for (cell, (warm_up, played)), url in zip(tasks.items(), proxies, strict=True)
        ]


def _tasks(cell: RealCell, seconds: float, first: int) -> tuple[list[Recording], list[Recording]]:
    """Those that warm a corner up, and those that are measured."""
    rounds = max(2, round(seconds / (2 * cell.task_s)))
    warm_up = synthetic.tasks(cell.agents, 20, first, 2)
    return warm_up, synthetic.tasks(rounds * cell.agents, cell.reasoning_tokens, first + len(warm_up), cell.calls)


def _folder(base: str, name: str) -> Path:
    folder = Path(base) / name
    folder.mkdir()
    return folder


@contextmanager
def agents(count: int) -> Iterator[Executor]:
    """So many processes for agents; what they import is imported once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(count, context, _say_little) as pool:
        yield pool


def _say_little() -> None:
    """Between two corners there is no proxy, which is no news."""
    logging.getLogger("agentspec.channel").setLevel(logging.ERROR)


def _pair(nth: int, task: Recording, stage: _Stage) -> tuple[Play, Play]:
    """Both plays of a task, the direct one first in the result."""
    direct, ahead = _seat().agents(stage)
    if stage.cell.agents > 1:  # agents do not ask in step; and who does in one arm would in the other
        time.sleep(random.Random(nth).uniform(0.0, _STAGGER_S))
    if nth // stage.cell.agents % 2:
        second = ahead.play(task, synthetic.library())
        return direct.play(task, synthetic.library()), second
    return direct.play(task, synthetic.library()), ahead.play(task, synthetic.library())


class _Seat:
    """A process's agent, both ways. It connects once in each corner, as agents do."""

    def __init__(self) -> None:
        self._of = ""
        self._open = ExitStack()
        self._agents: tuple[Direct, Ahead] | None = None

    def agents(self, stage: _Stage) -> tuple[Direct, Ahead]:
        """Those of this corner; what another one had is closed."""
        if self._agents is None or self._of != stage.proxy:
            self._open.close()
            tools = toolbox("any", stage.cell.tool_s, computing=stage.cell.computing)
            direct = self._open.enter_context(closing(Direct(stage.endpoint, tools)))
            ahead = self._open.enter_context(closing(Ahead(stage.proxy, tools)))
            self._of, self._agents = stage.proxy, (direct, ahead)
        return self._agents


@lru_cache(maxsize=1)
def _seat() -> _Seat:
    return _Seat()
