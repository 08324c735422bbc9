"""The arms against a live model: its own answers, its own probes. Tasks and tools are tau2's; the user says what was
recorded of him.

What the model says may differ between two arms; times are compared task by task as they come. The arms that look at a
recorded answer are left out.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentspec.config import Engine
from agentspec.proxy.bench.agent.arm_books import Books
from agentspec.proxy.bench.agent.arm_runs import ArmRun, TaskRun, slowed
from agentspec.proxy.bench.agent.arms import Arm, live_arms
from agentspec.proxy.bench.agent.recorded import Recorded, domain_of, task_id_of
from agentspec.proxy.bench.agent.serve import Serving, arm_process
from agentspec.proxy.bench.playing import Ahead, Direct
from agentspec.proxy.replay.agent import Reply, Tool, gathered
from agentspec.proxy.replay.recordings import Recording, Step, message_of
from agentspec.proxy.replay.tau2_tools import Toolbox, toolbox

_MOST_TURNS = 12
"""For one message of the user's; a model that goes on calling is stopped there."""


@dataclass(frozen=True, slots=True)
class Live:
    """The endpoint and its model; `kind` decides what a probe is."""

    endpoint: str
    model: str
    kind: Engine = Engine.OPENAI


@dataclass(slots=True)
class Talk:
    """A task in progress: what was said, and what the tools took."""

    task: Recording
    steps: list[Step] = field(default_factory=list)
    could_save_s: float = 0.0

    def said(self) -> Recording:
        """As a recording under the task's name."""
        task = self.task
        return Recording(task.task_id, tuple(self.steps), "live", task.system_ref, task.tools_ref, task.model)


def against_a_model(live: Live, data: Recorded, progress: Callable[[str], None]) -> list[ArmRun]:
    """Each task in each arm, one after the other."""
    every = live_arms()
    runs: dict[str, dict[str, TaskRun]] = {arm.name: {} for arm in every}
    talks: dict[str, list[Recording]] = {arm.name: [] for arm in every}
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as name, ExitStack() as stack:
        ledgers = {arm.name: f"sqlite:///{Path(name) / arm.name}.sqlite3" for arm in every}
        proxies = {
            arm.name: stack.enter_context(
                arm_process(Serving(arm, live.endpoint, ledgers[arm.name], (), engine=live.kind))
            )
            for arm in every
            if arm.makes
        }
        for nth, task in enumerate(data.tasks, 1):
            start = nth % len(every)
            for arm in (*every[start:], *every[:start]):
                run, talk = _played(task, arm, live, data, proxies)
                runs[arm.name][task.model] = run
                talks[arm.name].append(talk)
            told = ", ".join(f"{arm.name} {runs[arm.name][task.model].seconds:.1f} s" for arm in every)
            progress(f"{nth}/{len(data.tasks)} {domain_of(task)} {task.model}: {told}")
        stack.close()
        nothing = Books((), (), (), ())
        books = {arm.name: Books.read(ledgers[arm.name]) if arm.makes else nothing for arm in every}
    return [ArmRun(arm, runs[arm.name], books[arm.name], talks[arm.name]) for arm in every]


def _played(
    task: Recording, arm: Arm, live: Live, data: Recorded, proxies: Mapping[str, str]
) -> tuple[TaskRun, Recording]:
    tools = slowed(toolbox(task.tools_ref or "", task_id_of(task)), task.model, data.latencies)
    with closing(_agent(arm, live, proxies, tools)) as agent:
        talk = Talk(task)
        began_s = time.perf_counter()
        _talk(talk, live.model, agent, data)
        seconds = time.perf_counter() - began_s
    return TaskRun(domain_of(task), seconds, talk.could_save_s, 0), talk.said()


def _agent(arm: Arm, live: Live, proxies: Mapping[str, str], tools: Toolbox) -> Direct | Ahead:
    key = os.environ.get("OPENAI_API_KEY", "none")
    return Ahead(proxies[arm.name], tools, key) if arm.makes else Direct(live.endpoint, tools, api_key=key)


def _talk(talk: Talk, model: str, agent: Direct | Ahead, data: Recorded) -> None:
    """The user says one message after the other, and the agent does what it holds right after each."""
    client = agent.client_for(talk.task.model)
    system = data.library.system(talk.task)
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    schemas = data.library.tools_of(talk.task)
    for step in talk.task.steps:
        if step.role != "user":
            continue
        _say(talk, messages, step)
        for _ in range(_MOST_TURNS):
            asked_s = time.perf_counter()
            said: Any = {"model": model, "messages": messages, "tools": schemas, "temperature": 0}
            chunks: Any = client.chat.completions.create(**said, stream=True)
            reply = gathered(chunks)
            _say(talk, messages, Step("assistant", content=reply.content or None, tool_calls=reply.calls or None))
            if not reply.calls:
                break
            _run_tools(talk, messages, reply, (agent.tools, asked_s, data.ahead))


def _run_tools(
    talk: Talk, messages: list[dict[str, Any]], reply: Reply, how: tuple[Mapping[str, Tool], float, frozenset[str]]
) -> None:
    tools, asked_s, ahead = how
    for call in reply.calls:
        began_s = time.perf_counter()
        try:
            result = tools[call.name](**call.arguments)
        except Exception as error:  # the agent's own rule: a tool's error is told to the model
            result = f"Error: {error}"
        if call.name in ahead:
            talk.could_save_s += min(time.perf_counter() - began_s, began_s - asked_s)
        _say(talk, messages, Step("tool", tool_call_id=call.id, tool_result=result))


def _say(talk: Talk, messages: list[dict[str, Any]], step: Step) -> None:
    talk.steps.append(step)
    messages.append(message_of(step))
