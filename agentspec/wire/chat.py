"""The Chat Completions API without I/O: requests read, streams and answers turned into turn events.

Nothing here raises for what an endpoint sends: unknown fields and events pass, malformed ones are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentspec.calls import JsonCloser, ToolCall, parse_arguments
from agentspec.errors import RequestError
from agentspec.events import (
    CallComplete,
    CallFragment,
    CallNamed,
    OtherChoiceCalls,
    ReasoningDelta,
    TextDelta,
    TurnEnd,
    TurnEvent,
    Usage,
)
from agentspec.sse import SseDecoder

_REASONING_FIELDS = ("reasoning_content", "reasoning")
_decoder = msgspec.json.Decoder()


class ChatRequest(msgspec.Struct, frozen=True):
    """What agentspec reads of a request; the body itself goes on as it came."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    stream: bool | None = False

    @property
    def tool_schemas(self) -> dict[str, dict[str, Any]]:
        """JSON Schema of the parameters, by tool name, for the function tools of the request."""
        schemas: dict[str, dict[str, Any]] = {}
        for tool in self.tools or []:
            function = tool.get("function")
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                schemas[function["name"]] = function.get("parameters") or {}
        return schemas


_request_decoder = msgspec.json.Decoder(ChatRequest)


def parse_request(body: bytes) -> ChatRequest:
    """Read a request's body.

    Raises:
        RequestError: the body is no JSON (`invalid_json`).
        msgspec.ValidationError: JSON of another shape; the endpoint should judge it, not we.
    """
    try:
        return _request_decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        raise RequestError(f"the request body is not valid JSON: {error}", code="invalid_json") from error


@dataclass(slots=True)
class _OpenCall:
    """A call that is still arriving."""

    id: str | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    closer: JsonCloser = field(default_factory=JsonCloser)
    free_text: bool = False
    done: bool = False


class ChatStream:
    """Turns the bytes of a streamed answer into turn events, several calls interleaved."""

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._calls: dict[int, _OpenCall] = {}
        self._slots: dict[int, int] = {}
        """The endpoint's index of a call -> ours, which no two calls share."""
        self._ended = False

    @property
    def held_bytes(self) -> int:
        """Bytes of an event that is not complete yet."""
        return self._sse.held_bytes

    def feed(self, chunk: bytes) -> list[TurnEvent]:
        """Take the next bytes as the endpoint sent them (decompressed) and return what they said."""
        events: list[TurnEvent] = []
        for event in self._sse.feed(chunk):
            if event.data.strip() == "[DONE]":
                continue
            try:
                payload = _decoder.decode(event.data)
            except (msgspec.DecodeError, RecursionError):
                continue
            if isinstance(payload, dict):
                events += self._payload(payload)
        return events

    def finish(self) -> list[TurnEvent]:
        """The stream is over. A call that is still open then was broken off: it is none."""
        return self._end(None)

    def _payload(self, payload: dict[str, Any]) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        for choice in _dicts(payload.get("choices")):
            delta = choice.get("delta")
            if choice.get("index", 0) != 0:
                events += _other_choice(delta)
                continue
            if isinstance(delta, dict):
                events += self._delta(delta)
            if isinstance(choice.get("finish_reason"), str):
                events += self._end(choice["finish_reason"])
        return events + _usage(payload)

    def _delta(self, delta: dict[str, Any]) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        for name in _REASONING_FIELDS:
            if isinstance(delta.get(name), str) and delta[name]:
                events.append(ReasoningDelta(delta[name]))
                break
        if isinstance(delta.get("content"), str) and delta["content"]:
            events.append(TextDelta(delta["content"]))
        for fragment in _dicts(delta.get("tool_calls")):
            events += self._call(fragment)
        if isinstance(delta.get("function_call"), dict):  # the API's first form of tool calls
            events += self._call({"index": 0, "function": delta["function_call"]})
        return events

    def _call(self, fragment: dict[str, Any]) -> list[TurnEvent]:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        if isinstance(custom := fragment.get("custom"), dict):  # a call whose input is free text
            function = {"name": custom.get("name"), "arguments": custom.get("input")}
        name, identity = _text(function.get("name")), _text(fragment.get("id"))
        index = self._place(fragment.get("index"), name, identity)
        call = self._calls[index]
        call.free_text = call.free_text or isinstance(custom, dict)
        call.id = call.id or identity or None
        events: list[TurnEvent] = []
        if not call.name and name:
            call.name = name
            events.append(CallNamed(index, name, call.id))
        if text := _text(function.get("arguments")):
            call.arguments.append(text)
            events.append(CallFragment(index, text))
            if call.name and not (call.done or call.free_text) and call.closer.feed(text):
                events.append(_complete(index, call))
        return events

    def _place(self, told: Any, name: str, identity: str) -> int:
        """Which call a fragment belongs to. Some endpoints give every call index 0, or none at all."""
        if isinstance(told, int):
            known = self._slots.get(told)
        else:
            known = next((i for i, call in self._calls.items() if identity and call.id == identity), None)
            if known is None and not identity:
                known = max(self._calls, default=None)
        if known is None or (name and self._is_another(self._calls[known], name, identity)):
            known = len(self._calls)
            self._calls[known] = _OpenCall()
        if isinstance(told, int):
            self._slots[told] = known
        return known

    @staticmethod
    def _is_another(call: _OpenCall, name: str, identity: str) -> bool:
        """Whether a fragment with a name begins a new call rather than repeating what `call` is named."""
        if identity and call.id:
            return identity != call.id
        return bool(call.name) and (call.done or call.name != name)

    def _end(self, reason: str | None) -> list[TurnEvent]:
        if self._ended:
            return []
        self._ended = True
        open_calls = [(index, call) for index, call in self._calls.items() if call.name and not call.done]
        return [*(_complete(index, call, whole=reason is not None) for index, call in open_calls), TurnEnd(reason)]


def events_of_answer(body: bytes) -> list[TurnEvent]:
    """The same events, from an answer that was not streamed."""
    try:
        payload = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return []
    if not isinstance(payload, dict):
        return []
    stream = ChatStream()
    events: list[TurnEvent] = []
    for position, choice in enumerate(_dicts(payload.get("choices"))):
        message = choice.get("message")
        if isinstance(message, dict) and position > 0:
            events += _other_choice(message)
        elif isinstance(message, dict):
            calls = [{**call, "index": i} for i, call in enumerate(_dicts(message.get("tool_calls")))]
            reason = choice.get("finish_reason") or "stop"
            delta = {**message, "tool_calls": calls}
            events += stream._payload({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    return events + _usage(payload)


def _other_choice(delta: Any) -> list[TurnEvent]:
    """The calls that begin in a choice other than the first."""
    if not isinstance(delta, dict):
        return []
    calls = _dicts(delta.get("tool_calls")) + _dicts([{"function": delta.get("function_call")}])
    kinds = ((call, call.get("function") or call.get("custom")) for call in calls)
    named = ((call.get("id"), kind["name"]) for call, kind in kinds if isinstance(kind, dict) and kind.get("name"))
    return [OtherChoiceCalls(str(name), _text(identity) or None) for identity, name in named]


def _complete(index: int, call: _OpenCall, *, whole: bool = True) -> CallComplete:
    call.done = True
    arguments = None if call.free_text or not whole else parse_arguments("".join(call.arguments))
    return CallComplete(index, call.name, None if arguments is None else ToolCall(call.name, arguments, call.id))


def _usage(payload: dict[str, Any]) -> list[TurnEvent]:
    usage = payload.get("usage")
    if not isinstance(usage, dict):
        return []
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return [Usage(prompt if isinstance(prompt, int) else 0, completion if isinstance(completion, int) else 0)]


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
