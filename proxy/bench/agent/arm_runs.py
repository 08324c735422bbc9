"""The recorded tasks played in every arm, task by task: on real sockets, or in virtual time.

On sockets a task is played in all arms one after the other, by one process, in an order that changes from task to task.
Each arm has a proxy of its own, which lives through all tasks, and each play a database of its own.
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

from agentspec.proxy.bench.agent.arm_books import Books
from agentspec.proxy.bench.agent.arms import Arm, Bench
from agentspec.proxy.bench.agent.kits import RecordedKit
from agentspec.proxy.bench.agent.latencies import Latencies
from agentspec.proxy.bench.agent.machine import Costs
from agentspec.proxy.bench.agent.predictors import Answers
from agentspec.proxy.bench.agent.recorded import Recorded, domain_of, task_id_of
from agentspec.proxy.bench.agent.serve import Serving, arm_process
from agentspec.proxy.bench.agent.virtual_endpoint import Script
from agentspec.proxy.bench.agent.virtual_world import OneMemory, Seen, Setting, off, on
from agentspec.proxy.bench.playing import played_ahead, played_direct
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.processes import endpoint_process
from agentspec.proxy.replay.recordings import Library, Recording
from agentspec.proxy.replay.tau2_tools import DeclaredTool, Tool, Toolbox, toolbox

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A task in one arm. `could_save_s`: the sum of min(L, R) over its calls that may run ahead, as measured there."""

    domain: str
    seconds: float
    could_save_s: float
    differences: int


@dataclass(frozen=True, slots=True)
class ArmRun:
    """All tasks in one arm, by the name of the task, and the books of its proxy."""

    arm: Arm
    tasks: Mapping[str, TaskRun]
    books: Books
    said: Sequence[Recording] | None = None
    """What the model said in this arm, where that was not what is recorded."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be played, in which arms; `probe_s`, `accuracy`: of the probes that are declared."""

    data: Recorded
    arms: Sequence[Arm]
    pace: Pace
    probe_s: float
    accuracy: float


def in_virtual_time(wanted: Wanted, costs: Costs) -> list[ArmRun]:
    """One agent plays all tasks of one domain after the other, the domains side by side."""
    data = wanted.data
    kit = RecordedKit(data.library, data.latencies, data.effects)
    tasks = [[task for task in data.tasks if domain_of(task) == domain] for domain in data.domains]
    setting = Setting(tasks, Script(data.tasks), kit, costs=costs, pace=wanted.pace, options={"keep_arguments": True})
    found = []
    for arm in wanted.arms:
        seen = _in_virtual_time(arm, setting, wanted)
        of = seen.ledger.of
        runs = dict(zip((task.model for some in tasks for task in some), _runs(seen, data), strict=True))
        found.append(ArmRun(arm, runs, Books(of("turns"), of("bets"), of("claims"), of("probes"))))
    return found


def _in_virtual_time(arm: Arm, setting: Setting, wanted: Wanted) -> Seen:
    makes = arm.makes
    if makes is None:
        return off(replace(setting, parallel_tools=arm.parallel_tools))
    bench = Bench(Answers(setting.script.index), wanted.probe_s, wanted.accuracy)
    return on(setting, lambda endpoint, desk, usual: makes(bench, desk, usual), OneMemory() if arm.memory else None)


def _runs(seen: Seen, data: Recorded) -> Iterable[TaskRun]:
    by_name = {task.model: task for task in data.tasks}
    for played in seen.played:
        could_s = sum(min(call.waited_s, call.runway_s) for call in played.calls if call.tool in data.ahead)
        yield TaskRun(domain_of(by_name[played.task]), played.seconds, could_s, played.differences)


@dataclass(frozen=True, slots=True)
class _Ways:
    """Where a process finds everything.

    Attributes:
        arms: their names, and for those that go straight to the endpoint whether tools run side by side.
        proxies: by arm.
    """

    library: Library
    endpoint: str
    arms: Mapping[str, bool]
    proxies: Mapping[str, str]
    latencies: Latencies
    ahead: frozenset[str]


def on_sockets(wanted: Wanted, parallel: int, progress: Progress) -> list[ArmRun]:
    """So many tasks at the same time, each by a process of its own."""
    data = wanted.data
    runs: dict[str, dict[str, TaskRun]] = {arm.name: {} for arm in wanted.arms}
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as name, ExitStack() as stack:
        ledgers = {arm.name: f"sqlite:///{Path(name) / arm.name}.sqlite3" for arm in wanted.arms if arm.makes}
        endpoint = stack.enter_context(endpoint_process(data.files, wanted.pace))

        def proxy(arm: Arm) -> tuple[str, str]:
            how = (data.files, wanted.probe_s, wanted.accuracy)
            return arm.name, stack.enter_context(arm_process(Serving(arm, endpoint, ledgers[arm.name], *how)))

        with ThreadPoolExecutor() as pool:
            proxies = dict(pool.map(proxy, [arm for arm in wanted.arms if arm.makes]))
        every = {arm.name: arm.parallel_tools for arm in wanted.arms}
        ways = _Ways(data.library, endpoint, every, proxies, data.latencies, data.ahead)
        processes = stack.enter_context(ProcessPoolExecutor(parallel, mp_context=_context(data.domains)))
        played = processes.map(_task, range(len(data.tasks)), data.tasks, repeat(ways))
        for nth, (task, found) in enumerate(zip(data.tasks, played, strict=True), 1):
            for arm_name, run in found.items():
                runs[arm_name][task.model] = run
            told = ", ".join(f"{arm_name} {run.seconds:.1f} s" for arm_name, run in found.items())
            progress(f"{nth}/{len(data.tasks)} {domain_of(task)} {task.model}: {told}")
        stack.close()
        nothing = Books((), (), (), ())
        books = {arm.name: Books.read(ledgers[arm.name]) if arm.makes else nothing for arm in wanted.arms}
    return [ArmRun(arm, runs[arm.name], books[arm.name]) for arm in wanted.arms]


def _context(domains: Iterable[str]) -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *(f"tau2.domains.{domain}.environment" for domain in domains)])
    return context


def _task(nth: int, task: Recording, ways: _Ways) -> dict[str, TaskRun]:
    arms, start = list(ways.arms), nth % len(ways.arms)
    return {arm: _played(task, arm, ways) for arm in (*arms[start:], *arms[:start])}


def _played(task: Recording, arm: str, ways: _Ways) -> TaskRun:
    tools = slowed(toolbox(task.tools_ref or "", task_id_of(task)), task.model, ways.latencies)
    if arm in ways.proxies:
        play = played_ahead(task, ways.library, ways.proxies[arm], tools)
    else:
        play = played_direct(task, ways.library, ways.endpoint, tools, parallel_tools=ways.arms[arm])
    could_s = sum(min(ran.waited_s, ran.runway_s) for ran in play.ran if ran.tool in ways.ahead)
    return TaskRun(domain_of(task), play.seconds, could_s, len(play.mismatches))


def slowed(tools: Toolbox, task: str, latencies: Latencies) -> Toolbox:
    """The same tools at their declared latencies."""
    declared = {name: _slowed(name, tool, task, latencies) for name, tool in tools.declared.items()}
    return Toolbox(tools.task_id, declared)


def _slowed(name: str, tool: DeclaredTool, task: str, latencies: Latencies) -> DeclaredTool:
    function: Tool = tool.function
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> str:
        given = signature.bind(*args, **kwargs).arguments
        plain = {key: _plain(value) for key, value in given.items()}
        time.sleep(latencies.seconds(task, name, tool.effect, plain))
        return function(*args, **kwargs)

    return replace(tool, function=call)


def _plain(value: Any) -> Any:
    """An argument as JSON: models are dumped, the rest is told by its text."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    return _plain(value.model_dump()) if hasattr(value, "model_dump") else str(value)
