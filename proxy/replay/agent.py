"""An agent that plays a recorded trajectory: it asks the model, runs the tools, and checks both against the recording.

What it sends is what the recorded agent sent; what comes back is compared byte for byte. A tool result that differs is
noted and the recorded one is sent on, so that one difference counts once. A model message that differs ends the play.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai

from agentspec.proxy.replay.recordings import Call, Library, Recording, Step, message_of

Tool = Callable[..., str]


@dataclass(frozen=True)
class Mismatch:
    """A place where the play and the recording differ."""

    step: int
    what: str
    recorded: str
    got: str


@dataclass(frozen=True)
class Ran:
    """A tool that the agent ran: how long after it had asked the model, and how long it waited for the result."""

    tool: str
    runway_s: float
    waited_s: float


@dataclass
class Play:
    """What happened when a recording was played; `results` counts the recorded ones, reached or not."""

    task_id: str
    seconds: float = 0.0
    model_seconds: float = 0.0
    tool_seconds: float = 0.0
    turns: int = 0
    results: int = 0
    identical: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    finished: bool = False
    ran: list[Ran] = field(default_factory=list)


@dataclass(frozen=True)
class Reply:
    """A model message, put together from its stream."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


def play(
    recording: Recording,
    library: Library,
    client: openai.OpenAI,
    tools: Mapping[str, Tool],
    *,
    parallel_tools: bool = False,
) -> Play:
    """Play a recording to its end.

    Args:
        recording: what to play.
        library: its system prompt and tool schemas.
        client: towards the recorded endpoint, straight or through agentspec; best with a session header of its own.
        tools: the functions to run, by name, bound to this task's own state.
        parallel_tools: whether the calls of one message run side by side, each in a thread, or one after the other.
    """
    run = _Run(recording, library, client, tools)
    run.parallel_tools = parallel_tools
    started = time.perf_counter()
    run.to_the_end()
    run.play.seconds = time.perf_counter() - started
    return run.play


class _Run:
    """One play in progress: the messages so far and the account of it."""

    def __init__(
        self, recording: Recording, library: Library, client: openai.OpenAI, tools: Mapping[str, Tool]
    ) -> None:
        self.play = Play(recording.task_id, results=sum(step.role == "tool" for step in recording.steps))
        self._recording = recording
        self._client = client
        self._tools = tools
        self._asked_s = 0.0
        self.parallel_tools = False
        self._schemas = library.tools_of(recording)
        system = library.system(recording)
        self._messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []

    def to_the_end(self) -> None:
        pending: dict[str, str] = {}
        for at, step in enumerate(self._recording.steps):
            if step.role == "tool":
                self._check_result(at, step, pending)
            elif step.role == "assistant" and not is_greeting(self._recording, at):
                reply = self._asked(at, step)
                if reply is None:
                    return
                pending = self._run_tools(at, reply.calls)
            self._messages.append(message_of(step))
        self.play.finished = True

    def _asked(self, at: int, step: Step) -> Reply | None:
        """What the model says here; None, and a mismatch, where that is not what was recorded."""
        recorded = Reply(step.content or "", step.reasoning or "", step.calls)
        try:
            reply = self._ask()
        except (openai.OpenAIError, httpx.HTTPError, ValueError) as error:
            self.play.mismatches.append(Mismatch(at, "reply", repr(recorded), repr(error)))
            return None
        if reply != recorded:
            self.play.mismatches.append(Mismatch(at, "reply", repr(recorded), repr(reply)))
            return None
        return reply

    def _ask(self) -> Reply:
        started = self._asked_s = time.perf_counter()
        self.play.turns += 1
        chunks = self._client.chat.completions.create(
            model=self._recording.model,
            messages=self._messages,  # type: ignore[arg-type]
            tools=self._schemas or openai.omit,  # type: ignore[arg-type]
            stream=True,
        )
        reply = gathered(chunks)
        self.play.model_seconds += time.perf_counter() - started
        return reply

    def _run_tools(self, at: int, calls: Iterable[Call]) -> dict[str, str]:
        """Run the calls whose results were recorded; an agent that was stopped on a call never ran it."""
        recorded = self._answered_after(at)
        started = time.perf_counter()
        wanted = [call for call in calls if call.id in recorded]
        if self.parallel_tools and len(wanted) > 1:
            with ThreadPoolExecutor(len(wanted)) as pool:
                results = dict(zip((call.id for call in wanted), pool.map(self._timed, wanted), strict=True))
        else:
            results = {call.id: self._timed(call) for call in wanted}
        self.play.tool_seconds += time.perf_counter() - started
        return results

    def _answered_after(self, at: int) -> set[str]:
        answered: set[str] = set()
        for step in self._recording.steps[at + 1 :]:
            if step.role != "tool":
                break
            answered.add(step.tool_call_id or "")
        return answered

    def _timed(self, call: Call) -> str:
        began = time.perf_counter()
        result = self._run_tool(call)
        self.play.ran.append(Ran(call.name, began - self._asked_s, time.perf_counter() - began))
        return result

    def _run_tool(self, call: Call) -> str:
        tool = self._tools.get(call.name)
        if tool is None:
            return f"Error: Tool '{call.name}' not found."
        try:
            return tool(**call.arguments)
        except Exception as error:  # the agent's own rule: a tool's error is told to the model
            return f"Error: {error}"

    def _check_result(self, at: int, step: Step, pending: Mapping[str, str]) -> None:
        got = pending.get(step.tool_call_id or "")
        if got == step.tool_result:
            self.play.identical += 1
        else:
            self.play.mismatches.append(Mismatch(at, "result", step.tool_result, str(got)))


def is_greeting(recording: Recording, at: int) -> bool:
    """An opening line before the user's first is given to the agent, not asked of the model."""
    step, after = recording.steps[at], recording.steps[at + 1 : at + 2]
    return at == 0 and not step.calls and bool(after) and after[0].role == "user"


def gathered(chunks: Iterable[Any]) -> Reply:
    """The whole message from the chunks of its stream."""
    content, reasoning = "", ""
    calls: dict[int, tuple[str, str]] = {}
    arguments: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            for part in choice.delta.tool_calls or ():
                if part.id:
                    calls[part.index] = (part.id, part.function.name)
                arguments[part.index] = arguments.get(part.index, "") + (part.function.arguments or "")
    made = tuple(Call(name, json.loads(arguments[index]), id) for index, (id, name) in sorted(calls.items()))
    return Reply(content, reasoning, made)
