"""`agentspec bench hits`: a memory that starts empty, measured while it learns (prequential), pool by pool.

Trajectory after trajectory memory is asked at each point what comes next, and learns the trajectory when it is over; so
nothing is ever predicted from itself or from what comes later. Passes are independent and run in several processes; the
full memory is timed alone, after them.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Report
from agentspec.proxy.bench.hits.figures_of import figures_of
from agentspec.proxy.bench.hits.passes import HEADLINE, SCOPED, Build, Kind, Passed, run_pass
from agentspec.proxy.bench.hits.plot import needs_matplotlib, plot
from agentspec.proxy.bench.hits.pools import Pool, pools_of
from agentspec.proxy.bench.hits.scoring import exact_hit
from agentspec.proxy.bench.hits.under_load import Loaded, under_load

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        first: at most so many trajectories of each file, None for all.
        held: trajectories that fill the memory whose speed is measured.
        timed: at most so many real ones are then timed.
    """

    first: int | None
    held: int
    timed: int


FULL = Plan(first=None, held=100_000, timed=300)
QUICK = Plan(first=12, held=10_000, timed=100)


@runtime_checkable
class InParts(Protocol):
    """A memory that can be built without some of its parts."""

    PARTS: tuple[str, ...]


class _Inline(Executor):
    """Runs what is submitted at once, in this process."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def run(  # noqa: PLR0913  (the options of the command, all by keyword)
    data: Sequence[Path],
    build: Build,
    quick: bool = False,
    *,
    shuffled: bool = False,
    ablation: bool = False,
    jobs: int | None = None,
    plot_file: Path | None = None,
    console: Console | None = None,
    plan: Plan | None = None,
) -> Report:
    """Measure a memory on the recordings of files, or of all files in folders.

    Args:
        data: files and folders, in the order in which they are learnt from.
        build: makes the memory, empty.
        quick: the first trajectories of each file and a smaller full memory; within a minute.
        shuffled: the trajectories of each pool in a random order, always the same.
        ablation: also without each of the memory's parts; has no effect on a quick run but the names of the figures.
        jobs: processes at the same time; as many as there are cores unless said.
        plot_file: where to write the plot.
        console: shows the progress.
        plan: how much to measure, if neither a quick run nor a full one.

    Raises:
        ConfigError: there is nothing to measure on, or the plot cannot be written.
    """
    plan = plan or (QUICK if quick else FULL)
    pools = pools_of(data, first=plan.first, shuffled=shuffled)
    if plot_file is not None:
        needs_matplotlib(plot_file)
    parts = _parts(build) if ablation else ()
    kinds = [HEADLINE, SCOPED, *(Kind(without=frozenset({part})) for part in parts if not quick)]
    jobs = jobs or os.cpu_count() or 1
    with _progress(console) as progress:
        made = _passes(pools, kinds, build, jobs, progress)
        loaded = _full_memory(pools[-1], build, plan, jobs, progress)
    if plot_file is not None:
        plot({name: passes[HEADLINE] for name, passes in made.items()}, plot_file)
    how = {"order": "shuffle" if shuffled else "file", "quick": quick}
    return Report("next calls, predicted while learning", figures_of(made, loaded, parts), {**environment(), **how})


def _parts(build: Build) -> tuple[str, ...]:
    memory = build(frozenset())
    return tuple(memory.PARTS) if isinstance(memory, InParts) else ()


def _passes(
    pools: Sequence[Pool], kinds: Sequence[Kind], build: Build, jobs: int, progress: Progress
) -> dict[str, dict[Kind, Passed]]:
    """Every pass over every pool. The longest begin first: the last pool is that of all files."""
    task = progress.add_task("passes", total=len(pools) * len(kinds))
    made: dict[str, dict[Kind, Passed]] = {pool.name: {} for pool in pools}
    with _executor(jobs) as executor:
        wanted = [(pool, kind) for pool in reversed(pools) for kind in kinds]
        running = {executor.submit(run_pass, build, pool, kind): (pool, kind) for pool, kind in wanted}
        for done in as_completed(running):
            pool, kind = running[done]
            made[pool.name][kind] = done.result()
            progress.console.print(_told(pool, kind, made[pool.name][kind]), markup=False)
            progress.advance(task)
    return made


def _full_memory(pool: Pool, build: Build, plan: Plan, jobs: int, progress: Progress) -> Loaded:
    """In a process of its own, with nothing else under way here: its times and its size are to be its own."""
    task = progress.add_task(f"a memory of {plan.held:,} trajectories", total=1)
    with _executor(min(jobs, 2), most=1) as executor:
        loaded = executor.submit(under_load, build, pool, plan.held, plan.timed).result()
    progress.advance(task)
    return loaded


def _executor(jobs: int, most: int | None = None) -> Executor:
    if jobs == 1:
        return _Inline()
    return ProcessPoolExecutor(most or jobs, mp_context=multiprocessing.get_context("spawn"))


@contextmanager
def _progress(console: Console | None) -> Iterator[Progress]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console or Console(quiet=True)) as progress:
        yield progress


def _told(pool: Pool, kind: Kind, made: Passed) -> str:
    how = "scoped" if kind.scoped else " ".join(f"without {part}" for part in sorted(kind.without)) or "as it is"
    hits = exact_hit(made.calls)
    found = "no calls" if hits is None else f"{hits:.3f} of {len(made.calls)} calls"
    seconds = (sum(made.forecast_ms) + sum(made.learn_ms)) / 1000
    return f"{pool.name}, {how}: {found}, {seconds:.1f} s in memory"
