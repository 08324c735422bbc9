"""`agentspec bench wire`: what agentspec adds on the wire, beside the plain endpoint and beside LiteLLM.

What is measured (agentspec with speculation off and on, LiteLLM where it is installed) has one core to itself; the
endpoint (`wire_endpoint`) and the load generator (`wire_load`) share another. Each round takes every load and, under
it, one arm after the other, so that all arms meet the same disturbances; the servers that are not asked are idle.
Figures are medians over the rounds, `low` and `high` the least and the greatest round, and what an arm adds is taken
within a round. Loads:

* whole answers: each connection asks again as soon as its answer is complete, as fast as it goes;
* streams: a chunk each 20 ms, the connections out of step, so that the load is low; a chunk's delay is the time from
  the endpoint's sending it to its arrival, and the first chunk counts as time to first token only.

`rps_per_core.c16` is the throughput that was measured if it kept the server's core busy (`wire_figures.SATURATED`), and
otherwise requests per second of the server's CPU time: then load generator and endpoint were the limit, or other
processes took their share, and a progress line says which. CPU time is user and system time of the whole process, with
what it does after its last answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from agentspec.errors import ConfigError
from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Report
from agentspec.proxy.bench.wire_arms import (
    DIRECT,
    LITELLM,
    ON,
    Arm,
    Child,
    Cores,
    answers,
    endpoint,
    litellm,
    litellm_version,
    on_core,
    port_of,
    proxy,
    runtime_of,
)
from agentspec.proxy.bench.wire_bodies import bodies
from agentspec.proxy.bench.wire_endpoint import Beat
from agentspec.proxy.bench.wire_figures import PRIMARY, SATURATED, SECONDARY, Cell, Window, figures_of
from agentspec.proxy.bench.wire_load import LoadFailed, Target, connected

Progress = Callable[[str], None]
Windows = dict[tuple[str, Cell], list[Window]]

_QUIET_SHARE = 0.05
_QUIET_STEP_S = 0.05
_QUIET_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, how often. Loads that have aims (`PRIMARY`) come in every round and warm up each time; the others come
    in the first few rounds, when the servers are warm from those, and for LiteLLM only if `litellm_everywhere`.
    """

    rounds: int = 5
    seconds: float = 1.5
    others: int = 2
    other_seconds: float = 0.6
    warm_s: float = 0.25
    litellm_everywhere: bool = True
    beat: Beat = field(default_factory=Beat)
    primary: Sequence[Cell] = PRIMARY
    secondary: Sequence[Cell] = SECONDARY


FULL = Plan()
QUICK = Plan(rounds=2, seconds=0.5, others=1, other_seconds=0.15, warm_s=0.05, litellm_everywhere=False)


def run(
    quick: bool = False,
    *,
    litellm_python: Path | None = None,
    seconds: float | None = None,
    plan: Plan | None = None,
    progress: Progress = lambda line: None,
) -> Report:
    """Measure all arms under all loads.

    Args:
        quick: short windows, all within a minute.
        litellm_python: interpreter of an environment with `litellm[proxy]`; by default this one, if it has it.
        seconds: length of a window of the loads that have aims.
        plan: instead of `quick` and `seconds`.
        progress: told of each step, and of each window what limited it.

    Raises:
        ConfigError: not on Linux, a server does not start, or it answers wrongly.
    """
    if platform.system() != "Linux":
        raise ConfigError("bench wire pins processes to cores and reads their clocks: it needs Linux")
    plan = plan or (QUICK if quick else FULL)
    if seconds is not None:
        plan = replace(plan, seconds=seconds)
    version = _litellm_to_measure(litellm_python, progress)
    cores = Cores.usable()
    if not cores.apart:
        progress("only one core is usable: endpoint, load generator and proxy share it")
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as folder, ExitStack() as stack:
        python = None if version is None else litellm_python or Path(sys.executable)
        source, arms = _started(stack, Path(folder), cores, plan.beat, python)
        progress(f"all are there: {', '.join(arm.name for arm in arms)}")
        with on_core(cores.load):
            try:
                windows = _run_uvloop(lambda: _Run(source, arms, plan, progress))
            except LoadFailed as error:
                raise ConfigError(f"the run was broken off: {error}") from error
        rss_mb = {arm.name: arm.server.rss_mb() for arm in arms if arm.server is not None}
    where = {"cores": {"server": cores.server, "load": cores.load}, "litellm": version}
    return Report("on the wire", figures_of(windows, rss_mb), {**environment(), **where})


def _litellm_to_measure(python: Path | None, progress: Progress) -> str | None:
    version = litellm_version(python or Path(sys.executable))
    if version is None and python is not None:
        raise ConfigError(f"--litellm: {python} has no litellm[proxy]; pip install 'litellm[proxy]' there")
    if version is None:
        progress("litellm[proxy] is not installed here: its figures are left out (--litellm names another python)")
    return version


def _started(
    stack: ExitStack, folder: Path, cores: Cores, beat: Beat, python: Path | None
) -> tuple[Child, tuple[Arm, ...]]:
    """The endpoint and all arms, the direct one first, all of them ready."""
    source = stack.enter_context(endpoint(folder, cores.load, beat))
    port = port_of(source)
    arms = [proxy(folder, cores.server, port, speculation=speculation) for speculation in (False, True)]
    if python is not None:
        arms.append(litellm(folder, cores.server, port, python))
    servers = [(arm, stack.enter_context(arm.server)) for arm in arms if arm.server is not None]
    for arm, server in servers:
        server.wait_for(partial(answers, arm.target.port))
    arms = [_with_runtime(stack, arm) if arm.name == ON else arm for arm in arms]
    return source, (Arm(DIRECT, Target(port)), *arms)


def _with_runtime(stack: ExitStack, arm: Arm) -> Arm:
    """Connect this process as a runtime, so that speculation has somebody to speculate for."""
    path = stack.enter_context(runtime_of(arm)).base_url.removeprefix(f"http://127.0.0.1:{arm.target.port}")
    return replace(arm, target=Target(arm.target.port, f"{path}/chat/completions"))


def _run_uvloop(make: Callable[[], _Run]) -> Windows:
    import uvloop

    async def measure() -> Windows:
        return await make().all_rounds()

    return uvloop.run(measure())


class _Run:
    """All rounds, on one event loop."""

    def __init__(self, source: Child, arms: Sequence[Arm], plan: Plan, progress: Progress) -> None:
        self._source = source
        self._arms = arms
        self._plan = plan
        self._progress = progress
        self._windows: Windows = defaultdict(list)
        self._began_s = time.monotonic()

    async def all_rounds(self) -> Windows:
        plan = self._plan
        for arm in self._arms:
            if arm.server is not None:
                arm.server.pause()
        for number in range(max(plan.rounds, plan.others)):
            if number < plan.rounds:
                for cell in plan.primary:
                    await self._cell(cell, plan.seconds, plan.warm_s, f"round {number + 1}/{plan.rounds}")
            if number < plan.others:
                for cell in plan.secondary:
                    await self._cell(cell, plan.other_seconds, 0.0, f"round {number + 1}/{plan.others}")
        return self._windows

    async def _cell(self, cell: Cell, seconds: float, warm_s: float, said: str) -> None:
        told = []
        for arm in self._arms:
            if arm.name == LITELLM and not (self._plan.litellm_everywhere or cell in self._plan.primary):
                continue
            window = await self._alone(arm, cell, seconds, warm_s)
            self._windows[arm.name, cell].append(window)
            told.append(_told(arm, cell, window))
        self._progress(f"{time.monotonic() - self._began_s:5.1f} s, {said}, {cell.label}: {'; '.join(told)}")

    async def _alone(self, arm: Arm, cell: Cell, seconds: float, warm_s: float) -> Window:
        """A window in which the other servers are stopped."""
        if arm.server is None:
            return await self._window(arm, cell, seconds, warm_s)
        arm.server.resume()
        try:
            return await self._window(arm, cell, seconds, warm_s)
        finally:
            arm.server.pause()

    async def _window(self, arm: Arm, cell: Cell, seconds: float, warm_s: float) -> Window:
        requests = [bodies(cell.size, streamed=cell.streamed) for _ in range(cell.connections)]
        spread_s = self._plan.beat.interval_s if cell.streamed else 0.0
        pool = await connected(arm.target, requests)
        try:
            if warm_s:
                await pool.run(warm_s, spread_s)
                await quiet(arm.server)
            before = _cpu_s(arm.server), self._others_s()
            sample = await pool.run(seconds, spread_s)
            after = _cpu_s(arm.server), self._others_s()
        except LoadFailed as error:
            raise LoadFailed(f"{arm.name}, {cell.label}: {error}") from error
        finally:
            pool.close()
        await quiet(arm.server)
        settled_s = _cpu_s(arm.server) - before[0]
        return Window(sample, after[0] - before[0], settled_s, after[1] - before[1])

    def _others_s(self) -> float:
        return time.process_time() + self._source.cpu_s()


def _cpu_s(server: Child | None) -> float:
    return server.cpu_s() if server is not None else 0.0


async def quiet(server: Child | None) -> None:
    """Wait until a server rests: what it put off belongs to the window before."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_QUIET_LIMIT_S if server is not None else 0):
            resting = False
            while not resting:
                before_s = _cpu_s(server)
                await asyncio.sleep(_QUIET_STEP_S)
                resting = _cpu_s(server) - before_s < _QUIET_SHARE * _QUIET_STEP_S


def _told(arm: Arm, cell: Cell, window: Window) -> str:
    rate = f"{arm.name} {window.sample.rps:.0f}/s"
    if arm.server is None:
        return rate
    limit = ""
    if not cell.streamed and cell.connections > 1 and window.busy < SATURATED:
        others = window.others_busy
        why = "endpoint and load were the limit" if others >= SATURATED else "other processes were on the cores"
        limit = f": {why}, {others:.0%} of theirs"
    return f"{rate} {window.cpu_us:.0f} us ({window.busy:.0%} of its core{limit})"
