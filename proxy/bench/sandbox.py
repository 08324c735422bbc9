"""`agentspec bench sandbox`: what each tier costs on this machine, and whether discarded runs leave anything."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentspec.errors import ConfigError
from agentspec.proxy.bench import sandbox_tools as tools
from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Figure, Report
from agentspec.proxy.bench.sandbox_outside import Outside, look, strays
from agentspec.runs import Order, Run, Work
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.capabilities import missing_tiers
from agentspec.tools_sandbox.environment import place_here
from agentspec.tools_sandbox.tiers.child import ask, wait_ready
from agentspec.tools_sandbox.tiers.overlay_tier import OverlayTier
from agentspec.tools_sandbox.tiers.process import ProcessTier
from agentspec.tools_sandbox.tool import code_seal

Progress = Callable[[str], None]

_ROUNDS = 30
_CALLS = 100
"""To a warm child, before the one that counts."""

_FILES = 200
_AT_ONCE = 4
_LIMIT_S = 30.0


@dataclass(slots=True)
class _Started:
    run: Run
    ended: threading.Event
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class _Bench:
    process: ProcessTier
    overlay: OverlayTier | None
    workspace: Path

    def order(self, function: Callable[..., Any], sandbox: Sandbox, **arguments: Any) -> Order:
        return Order(
            module=function.__module__,
            qualname=function.__qualname__,
            seal=code_seal(function),
            arguments=arguments,
            form="plain",
            place=place_here(()),
            sandbox=sandbox,
            timeout_s=_LIMIT_S,
            changes_nothing=False,
        )

    def start(self, order: Order) -> _Started:
        tier = self.overlay if order.sandbox.commits else self.process
        assert tier is not None
        ended = threading.Event()
        started = _Started(None, ended)  # type: ignore[arg-type]

        def done(_: Any, error: BaseException | None) -> None:
            started.error = error
            ended.set()

        started.run = tier.start(Work(order.qualname, lambda: None, done, order))
        return started

    def finish(self, order: Order) -> _Started:
        started = self.start(order)
        if not started.ended.wait(_LIMIT_S):
            raise ConfigError(f"a run of {order.qualname} did not end")
        if started.error is not None:
            raise ConfigError(f"a run of {order.qualname} failed: {started.error}")
        return started

    @property
    def over_files(self) -> Sandbox:
        return Sandbox("overlay", workspace=str(self.workspace))


def run(quick: bool, progress: Progress = lambda text: None, discards: int | None = None) -> Report:
    """Measure; `discards` runs are thrown away (default 10,000, quick 300).

    Raises:
        ConfigError: this machine cannot have tier T1 at all.
    """
    missing = missing_tiers()
    if "T1" in missing:
        raise ConfigError(f"bench sandbox: {missing['T1']} (`agentspec doctor` says more)")
    with _bench("T2" not in missing, spares=2) as bench:
        progress(f"tiers, {_ROUNDS} rounds each")
        figures = [*_process_figures(bench), *_overlay_figures(bench, missing.get("T2"), progress)]
    count = discards or (300 if quick else 10_000)
    with _bench("T2" not in missing, spares=0) as bench:
        figures += _discard_figures(bench, count, progress)
    return Report("tiers", tuple(figures), environment())


@contextlib.contextmanager
def _bench(with_overlay: bool, spares: int) -> Iterator[_Bench]:
    folder = Path(tempfile.mkdtemp(prefix="agentspec-bench-", dir=_disk()))
    workspace = folder / "workspace"
    workspace.mkdir()
    for number in range(_FILES):
        (workspace / f"file{number}").write_text("x" * 100)
    for name in ("kept", "other"):
        (workspace / name).write_text(name)
    bench = _Bench(ProcessTier(_AT_ONCE, spares), OverlayTier(_AT_ONCE) if with_overlay else None, workspace)
    try:
        yield bench
    finally:
        bench.process.close()
        if bench.overlay is not None:
            bench.overlay.close()
        shutil.rmtree(folder)


def _disk() -> str:
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()


def _process_figures(bench: _Bench) -> list[Figure]:
    cold_tier = ProcessTier(spares=0)
    cold_bench = _Bench(cold_tier, None, bench.workspace)
    try:
        order = bench.order(tools.add, Sandbox("process"), a=1, b=2)
        cold_bench.finish(order)
        cold = [_ms(lambda: cold_bench.finish(order)) for _ in range(_ROUNDS)]
        return [_figure("t1_cold_ms", cold), _figure("t1_spare_ms", _spare(bench)), _figure("t1_warm_ms", _warm(bench))]
    finally:
        cold_tier.close()


def _spare(bench: _Bench) -> list[float]:
    """A call for which a child waits, shut in already; each is used once."""
    order = bench.order(tools.add, Sandbox("process"), a=1, b=2)
    times = []
    for _ in range(_ROUNDS):
        time.sleep(0.05)
        times.append(_ms(lambda: bench.finish(order)))
    return times


def _warm(bench: _Bench) -> list[float]:
    """A job to a child that is kept for its tool, and its result back: once with each of so many children.

    Where the kernel puts a child decides whether it is woken on the same core, so one child would not tell.
    """
    order = bench.order(tools.add, Sandbox("process", warm=True), a=1, b=2)
    bench.finish(order)
    zygote = bench.process.zygote({})
    job = zygote.job(order)
    times = []
    for _ in range(_ROUNDS):
        child = zygote.spawn(bench.process.plan(order))
        wait_ready(child, _LIMIT_S)
        times.append([_ms(lambda: ask(child, job, _LIMIT_S)) for _ in range(_CALLS)][-1])  # noqa: B023  (called at once)
        zygote.kill(child)
    return times


def _overlay_figures(bench: _Bench, missing: str | None, progress: Progress) -> list[Figure]:
    names = ("t2_cold_ms", "t2_discard_ms", "t2_commit_ms")
    if bench.overlay is None:
        progress(f"tier T2 is missing: {missing}")
        return [Figure(name, None, "ms") for name in names]
    order = bench.order(tools.write, bench.over_files, path=str(bench.workspace / "made"), text="x")
    bench.finish(order).run.cancel()
    cold, discard, commit = [], [], []
    for _ in range(_ROUNDS):
        began_s = time.perf_counter()
        started = bench.finish(order)
        cold.append((time.perf_counter() - began_s) * 1000)
        discard.append(_ms(started.run.cancel))
    for _ in range(_ROUNDS):
        started = bench.finish(order)
        commit.append(_ms(started.run.commit))
    (bench.workspace / "made").unlink()
    return [_figure(name, times) for name, times in zip(names, (cold, discard, commit), strict=True)]


def _discard_figures(bench: _Bench, count: int, progress: Progress) -> list[Figure]:
    """Runs that litter, all of them discarded: some when they are over, some in the middle."""
    folder = str(bench.workspace)
    places = [Sandbox("process"), Sandbox("process", subprocesses=True, network=True)]
    if bench.overlay is not None:
        places += [bench.over_files, Sandbox("overlay", workspace=folder, network=True)]
    orders = [
        order
        for place in places
        for order in (
            bench.order(tools.litter, place, folder=folder),
            bench.order(tools.dawdle, place, folder=folder, seconds=5.0),
        )
    ]
    for order in orders:  # the zygotes are there before the first look
        _discard(bench, order)
    before = _settled(bench)
    began_s = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for number, _ in enumerate(threads.map(lambda n: _discard(bench, orders[n % len(orders)]), range(count)), 1):
            if number % max(1, count // 10) == 0:
                progress(f"{number} of {count} runs discarded, {time.monotonic() - began_s:.0f} s")
    found = strays(before, _settled(bench))
    for line in found[:20]:
        progress(f"stray: {line}")
    return [Figure("stray_effects", len(found), "effects", n=count), Figure("discarded", count, "runs")]


def _discard(bench: _Bench, order: Order) -> None:
    started = bench.start(order)
    started.ended.wait(0.02 if "dawdle" in order.qualname else _LIMIT_S)
    started.run.cancel()
    if not started.ended.wait(_LIMIT_S):
        raise ConfigError("a cancelled run did not end")


def _settled(bench: _Bench) -> Outside:
    """The outside, once nothing is on its way any more: the last runs may still be ending."""
    shared = [Path("/tmp"), Path("/dev/shm"), Path.home()]
    state = bench.overlay.home(str(bench.workspace)) if bench.overlay is not None else Path("/nonexistent")
    last = look(bench.workspace, state, shared)
    for _ in range(50):
        time.sleep(0.2)
        now = look(bench.workspace, state, shared)
        if now == last:
            break
        last = now
    return last


def _ms(step: Callable[[], Any]) -> float:
    began_s = time.perf_counter()
    step()
    return (time.perf_counter() - began_s) * 1000


def _figure(name: str, times_ms: list[float]) -> Figure:
    ordered = sorted(times_ms)
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    return Figure(name, statistics.median(ordered), "ms", low, high, len(ordered))
