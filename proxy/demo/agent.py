"""The agent: an ordinary tool loop over the openai SDK. Both arms of the demo are this code, given different tools."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import openai
from openai.types.chat import ChatCompletionChunk

from agentspec.proxy.demo.questions import conversation

MAX_TURNS = 6
_MAX_TOKENS = 160


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of an answer's time; seconds since the question was asked. `kind` is `model` or `tool`."""

    kind: str
    label: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Answer:
    """What the agent said, which calls it made (as `tool(arguments) -> result`), and where its time went."""

    text: str
    calls: tuple[str, ...]
    seconds: float
    spans: tuple[Span, ...]

    def time_in(self, kind: str) -> float:
        return sum(span.seconds for span in self.spans if span.kind == kind)


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class _Reply:
    """One model message, put together from its chunks."""

    content: str = ""
    calls: list[_Call] = field(default_factory=list)

    def message(self) -> dict[str, Any]:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.calls
        ]
        return {"role": "assistant", "content": self.content, **({"tool_calls": calls} if calls else {})}


@dataclass
class _Clock:
    """Notes what took how long."""

    began: float = field(default_factory=time.perf_counter)
    spans: list[Span] = field(default_factory=list)

    def now(self) -> float:
        return time.perf_counter() - self.began

    def note(self, kind: str, label: str, start: float) -> None:
        self.spans.append(Span(kind, label, start, self.now()))


@dataclass
class Agent:
    """Answers questions with a model and some tools.

    Attributes:
        schemas: the tools as the model is told about them.
        tools: what runs when the model calls a name.
    """

    client: openai.OpenAI
    model: str
    schemas: list[dict[str, Any]]
    tools: Mapping[str, Callable[..., Any]]

    def ask(self, question: str, session: str) -> Answer:
        """Answer one question in a new conversation, which `session` names to the proxy (the endpoint ignores it).

        Raises:
            RuntimeError: the model was still calling tools after `MAX_TURNS` turns.
        """
        clock = _Clock()
        messages = conversation(question)
        calls: list[str] = []
        for _ in range(MAX_TURNS):
            reply = self._turn(messages, session, clock)
            messages.append(reply.message())
            if not reply.calls:
                return Answer(reply.content.strip(), tuple(calls), clock.now(), tuple(clock.spans))
            for call in reply.calls:
                result = self._run(call, clock)
                calls.append(f"{call.name}({call.arguments}) -> {result}")
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        raise RuntimeError(f"no answer after {MAX_TURNS} turns to {question!r}; calls so far: {calls}")

    def _turn(self, messages: list[dict[str, Any]], session: str, clock: _Clock) -> _Reply:
        start = clock.now()
        request: Any = {"messages": messages, "tools": self.schemas}
        stream = self.client.chat.completions.create(
            model=self.model,
            stream=True,
            temperature=0,
            parallel_tool_calls=False,
            max_completion_tokens=_MAX_TOKENS,
            extra_headers={"x-agentspec-session": session},
            extra_body={"cache_salt": session},  # the engine drafts nothing from the other arm's answers
            **request,
        )
        reply = _read(stream)
        clock.note("model", reply.calls[0].name if reply.calls else "answer", start)
        return reply

    def _run(self, call: _Call, clock: _Clock) -> str:
        start = clock.now()
        try:
            result = self.tools[call.name](**json.loads(call.arguments))
        except (KeyError, TypeError, ValueError) as error:  # the model's mistake: it may read it and try again
            result = {"error": str(error)}
        clock.note("tool", call.name, start)
        return json.dumps(result, ensure_ascii=False)


def _read(stream: Iterable[ChatCompletionChunk]) -> _Reply:
    reply = _Reply()
    for chunk in stream:
        for choice in chunk.choices:
            reply.content += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                while len(reply.calls) <= part.index:
                    reply.calls.append(_Call())
                call = reply.calls[part.index]
                call.id = part.id or call.id
                if part.function is not None:
                    call.name += part.function.name or ""
                    call.arguments += part.function.arguments or ""
    return reply
