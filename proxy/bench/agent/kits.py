"""Tools for virtual time: what each answers, and how long that is declared to take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from agentspec.calls import canonical_json
from agentspec.effects import Effect
from agentspec.proxy.bench.agent import synthetic
from agentspec.proxy.bench.agent.latencies import Latencies
from agentspec.proxy.replay.recordings import Library, Recording

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VirtualTool:
    """One tool. `domain`: the state that it reads or writes."""

    name: str
    effect: Effect
    domain: str
    parameters: Mapping[str, Any]
    answer: Callable[[Arguments], str]
    seconds: Callable[[Arguments], float]


class Kit(Protocol):
    """The tools of a run."""

    @property
    def library(self) -> Library:
        """Prompts and schemas of the tasks."""
        ...

    def tools(self, agent: str, task: Recording) -> Sequence[VirtualTool]:
        """Those that this agent has for this task; the same object as before where they are the same."""
        ...


@dataclass(slots=True)
class ShopKit:
    """The synthetic shop's; each call takes the same time. Each agent's orders are a state of their own."""

    tool_s: float
    library: Library = field(default_factory=synthetic.library)
    _made: dict[str, Sequence[VirtualTool]] = field(default_factory=dict)

    def tools(self, agent: str, task: Recording) -> Sequence[VirtualTool]:
        if agent not in self._made:
            self._made[agent] = [self._tool(name, effect, agent) for name, effect in synthetic.EFFECTS.items()]
        return self._made[agent]

    def _tool(self, name: str, effect: Effect, agent: str) -> VirtualTool:
        parameter, tool_s = synthetic.PARAMETER[name], self.tool_s

        def answer(arguments: Arguments) -> str:
            return synthetic.result_of(name, arguments[parameter])

        return VirtualTool(
            name, effect, f"orders of {agent}", synthetic.parameters_of(name), answer, lambda arguments: tool_s
        )


@dataclass(frozen=True, slots=True)
class RecordedKit:
    """Tools that answer as they did in the recording, in the state that the task's writes have led to by then, at
    declared latencies. A result from before a write is another one, so handing one over would show.
    """

    library: Library
    latencies: Latencies
    effects: Mapping[str, Effect]

    def tools(self, agent: str, task: Recording) -> Sequence[VirtualTool]:
        answers = _Answers(task, self.effects)
        return [self._tool(one["function"], task, answers) for one in self.library.tools_of(task)]

    def _tool(self, function: Mapping[str, Any], task: Recording, answers: _Answers) -> VirtualTool:
        name = function["name"]
        effect = self.effects.get(name, Effect.WRITE)
        seconds = partial(self.latencies.seconds, task.model, name, effect)
        parameters = function.get("parameters", {})
        return VirtualTool(name, effect, f"state of {task.model}", parameters, partial(answers.to, name), seconds)


class _Answers:
    """The recorded results of one task, by call and by how many writes came before."""

    def __init__(self, task: Recording, effects: Mapping[str, Effect]) -> None:
        self._effects = effects
        self._writes = 0
        self._results: dict[tuple[str, str, int], str] = {}
        calls = {call.id: call for step in task.steps for call in step.calls}
        writes = 0
        for step in task.steps:
            if step.role == "tool" and (call := calls.get(step.tool_call_id or "")) is not None:
                writes += self._writes_by(call.name)
                self._results[call.name, canonical_json(call.arguments), writes] = step.tool_result

    def to(self, name: str, arguments: Arguments) -> str:
        self._writes += self._writes_by(name)
        key = name, canonical_json(dict(arguments)), self._writes
        return self._results.get(key, "Error: this call was not recorded here")

    def _writes_by(self, name: str) -> int:
        return not self._effects.get(name, Effect.WRITE).changes_nothing
