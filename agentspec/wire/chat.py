"""The Chat Completions API without I/O: requests read, streams and answers turned into turn events.

Nothing here raises for what an endpoint sends: unknown fields and events pass, malformed ones are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agentspec.calls import ToolCall, parse_arguments
from agentspec.events import CallNamed, OtherChoiceCalls, ReasoningDelta, TextDelta, TurnEnd, TurnEvent, Usage
from agentspec.trajectory import (
    SYSTEM,
    TOOL,
    Said,
    call_meaning,
    content_meaning,
    meaning_digest,
    result_text,
    spoken_text,
)
from agentspec.wire.answers import EventStream, OpenCall, dicts, payload_of, usage
from agentspec.wire.request import NULL, TurnRequest, decode, mapping, message_memo, text_of, tools_memo, unreadable

_REASONING_FIELDS = ("reasoning_content", "reasoning")


class _Body(msgspec.Struct):
    model: str
    messages: list[msgspec.Raw]
    tools: msgspec.Raw = NULL
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    stream: bool | None = False


_body_decoder = msgspec.json.Decoder(_Body)


class _PlainDelta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: None = None
    function_call: None = None


class _PlainChoice(msgspec.Struct):
    delta: _PlainDelta
    index: int = 0
    finish_reason: None = None


class _PlainChunk(msgspec.Struct):
    """A chunk of text: whatever else one may hold makes it another shape."""

    choices: list[_PlainChoice]
    usage: None = None


_plain_decoder = msgspec.json.Decoder(_PlainChunk)


def read_request(body: bytes) -> TurnRequest:
    """Read a request's body.

    Raises:
        RequestError: the body is no JSON (`invalid_json`).
        msgspec.ValidationError: JSON of another shape; the endpoint should judge it, not we.
    """
    request = decode(_body_decoder, body)
    tools = _tools(request.tools)
    return TurnRequest(
        api="chat",
        model=request.model,
        said=[said for raw in request.messages for said in _messages(raw)],
        tools=tools,
        may_call=request.tool_choice != "none",
        one_call=request.parallel_tool_calls is False,
        stream=bool(request.stream),
        about=tools.about,
    )


def read_message(message: Any) -> list[Said]:
    """What one message says."""
    if not isinstance(message, dict):
        return [unreadable(message)]
    role, content = message.get("role"), message.get("content")
    meaning: dict[str, Any] = {"role": SYSTEM if role == "developer" else role}
    if text := content_meaning(content):
        meaning["content"] = text
    if isinstance(message.get("name"), str):
        meaning["name"] = message["name"]
    raw_calls = dicts(message.get("tool_calls"))
    if raw_calls:
        meaning["calls"] = [_call_meaning(call) for call in raw_calls]
    answered = message.get("tool_call_id") if role == TOOL else None
    return [
        Said(
            role=text_of(meaning["role"]),
            digest=meaning_digest(meaning),
            calls=tuple(_calls(raw_calls)),
            made=frozenset(call["id"] for call in raw_calls if isinstance(call.get("id"), str)),
            answers=(str(answered),) if answered else (),
            text=spoken_text(text_of(meaning["role"]), content),
            results=(result_text(content),) if answered else (),
        )
    ]


def _call_meaning(call: dict[str, Any]) -> Any:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return {k: v for k, v in call.items() if k not in ("id", "index")}
    return call_meaning(function.get("name"), str(function.get("arguments") or ""))


def _calls(raw_calls: list[dict[str, Any]]) -> Iterable[ToolCall]:
    for call in raw_calls:
        function = mapping(call.get("function"))
        arguments = parse_arguments(str(function.get("arguments") or ""))
        if isinstance(function.get("name"), str) and arguments is not None:
            yield ToolCall(function["name"], arguments, call.get("id"))


def _read_tool(tool: dict[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    function = mapping(tool.get("function"))
    if isinstance(function.get("name"), str):
        yield function["name"], mapping(function.get("parameters"))


_messages = message_memo(read_message)
_tools = tools_memo(_read_tool, lambda tool: mapping(tool.get("function")))


class ChatStream(EventStream):
    """Turns the bytes of a streamed answer into turn events, several calls interleaved."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[int, OpenCall] = {}
        self._slots: dict[int, int] = {}
        """The endpoint's index of a call -> ours, which no two calls share."""

    def finish(self) -> list[TurnEvent]:
        """The stream is over. A call that is still open then was broken off: it is none."""
        return self._end(None)

    def _plain(self, data: str | bytes) -> list[TurnEvent] | None:
        try:
            choices = _plain_decoder.decode(data).choices
        except (msgspec.DecodeError, RecursionError):
            return None
        if len(choices) != 1 or choices[0].index != 0:
            return None
        delta = choices[0].delta
        events: list[TurnEvent] = []
        if reasoning := delta.reasoning_content or delta.reasoning:
            events.append(ReasoningDelta(reasoning))
        if delta.content:
            events.append(TextDelta(delta.content))
        return events

    def _payload(self, payload: dict[str, Any], kind: str = "") -> list[TurnEvent]:
        events: list[TurnEvent] = []
        for choice in dicts(payload.get("choices")):
            delta = choice.get("delta")
            if choice.get("index", 0) != 0:
                events += _other_choice(delta)
                continue
            if isinstance(delta, dict):
                events += self._delta(delta)
            if isinstance(choice.get("finish_reason"), str):
                events += self._end(choice["finish_reason"])
        return events + _usage_of(payload)

    def _delta(self, delta: dict[str, Any]) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        for name in _REASONING_FIELDS:
            if isinstance(delta.get(name), str) and delta[name]:
                events.append(ReasoningDelta(delta[name]))
                break
        if isinstance(delta.get("content"), str) and delta["content"]:
            events.append(TextDelta(delta["content"]))
        for fragment in dicts(delta.get("tool_calls")):
            events += self._call(fragment)
        if isinstance(delta.get("function_call"), dict):  # the API's first form of tool calls
            events += self._call({"index": 0, "function": delta["function_call"]})
        return events

    def _call(self, fragment: dict[str, Any]) -> list[TurnEvent]:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        if isinstance(custom := fragment.get("custom"), dict):  # a call whose input is free text
            function = {"name": custom.get("name"), "arguments": custom.get("input")}
        name, identity = text_of(function.get("name")), text_of(fragment.get("id"))
        index = self._place(fragment.get("index"), name, identity)
        call = self._calls[index]
        call.free_text = call.free_text or isinstance(custom, dict)
        call.id = call.id or identity or None
        events: list[TurnEvent] = []
        if not call.name and name:
            call.name = name
            events.append(CallNamed(index, name, call.id))
        return events + call.more(index, text_of(function.get("arguments")))

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
            self._calls[known] = OpenCall()
        if isinstance(told, int):
            self._slots[told] = known
        return known

    @staticmethod
    def _is_another(call: OpenCall, name: str, identity: str) -> bool:
        """Whether a fragment with a name begins a new call rather than repeating what `call` is named."""
        if identity and call.id:
            return identity != call.id
        return bool(call.name) and (call.done or call.name != name)

    def _end(self, reason: str | None) -> list[TurnEvent]:
        if self._ended:
            return []
        self._ended = True
        open_calls = [(index, call) for index, call in self._calls.items() if call.name and not call.done]
        return [*(call.complete(index, whole=reason is not None) for index, call in open_calls), TurnEnd(reason)]


def read_answer(body: bytes) -> list[TurnEvent]:
    """The same events, from an answer that was not streamed."""
    payload = payload_of(body)
    if payload is None:
        return []
    stream = ChatStream()
    events: list[TurnEvent] = []
    for position, choice in enumerate(dicts(payload.get("choices"))):
        message = choice.get("message")
        if isinstance(message, dict) and position > 0:
            events += _other_choice(message)
        elif isinstance(message, dict):
            calls = [{**call, "index": i} for i, call in enumerate(dicts(message.get("tool_calls")))]
            reason = choice.get("finish_reason") or "stop"
            delta = {**message, "tool_calls": calls}
            events += stream._payload({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    return events + _usage_of(payload)


def _other_choice(delta: Any) -> list[TurnEvent]:
    """The calls that begin in a choice other than the first."""
    if not isinstance(delta, dict):
        return []
    calls = dicts(delta.get("tool_calls")) + dicts([{"function": delta.get("function_call")}])
    kinds = ((call, call.get("function") or call.get("custom")) for call in calls)
    named = ((call.get("id"), kind["name"]) for call, kind in kinds if isinstance(kind, dict) and kind.get("name"))
    return [OtherChoiceCalls(str(name), text_of(identity) or None) for identity, name in named]


def _usage_of(payload: dict[str, Any]) -> list[Usage]:
    told = payload.get("usage")
    if not isinstance(told, dict):
        return []
    return [usage(told.get("prompt_tokens"), told.get("completion_tokens"), told.get("completion_tokens_details"))]
