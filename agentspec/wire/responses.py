"""The Responses API without I/O: requests read, streams and answers turned into turn events.

Items are read as the messages they mean: reasoning is left out, as frameworks drop or keep it as they like. Calls that
the agent's side carries out are calls here (`function_call`, `custom_tool_call`, shells, computers, patches); those
that the provider carries out (web search, code interpreter, …) are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agentspec.calls import ToolCall, parse_arguments
from agentspec.events import (
    FAILED,
    AnswerBegan,
    ItemBegan,
    ReasoningDelta,
    TextDelta,
    TurnEnd,
    TurnEvent,
)
from agentspec.trajectory import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    USER,
    Said,
    call_meaning,
    content_meaning,
    meaning_digest,
    result_text,
    spoken_text,
    visible_text,
)
from agentspec.wire.answers import EventStream, OpenCalls, dicts, payload_of, usage
from agentspec.wire.request import NULL, TurnRequest, decode, mapping, message_memo, text_of, tools_memo, unreadable

_OTHER_CALLS = frozenset({"computer_call", "local_shell_call", "shell_call", "apply_patch_call"})
"""Calls that the agent's side carries out and whose input is no JSON of a function's."""
_CALLS = _OTHER_CALLS | {"function_call", "custom_tool_call"}


class _Body(msgspec.Struct):
    model: str = ""
    input: msgspec.Raw = NULL
    instructions: msgspec.Raw = NULL
    tools: msgspec.Raw = NULL
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    stream: bool | None = False
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = False
    store: bool | None = None


_body_decoder = msgspec.json.Decoder(_Body)
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def read_request(body: bytes) -> TurnRequest:
    """Read a request's body.

    Raises:
        RequestError: the body is no JSON (`invalid_json`).
        msgspec.ValidationError: JSON of another shape; the endpoint should judge it, not we.
    """
    request = decode(_body_decoder, body)
    conversation, tools = request.conversation, _tools(request.tools)
    return TurnRequest(
        api="responses",
        model=request.model,
        said=[*_system(request.instructions), *_input(request.input)],
        tools=tools,
        may_call=request.tool_choice != "none",
        one_call=request.parallel_tool_calls is False,
        stream=bool(request.stream),
        previous=request.previous_response_id or None,
        conversation=text_of(conversation.get("id") if isinstance(conversation, dict) else conversation) or None,
        background=bool(request.background),
        kept=request.store is not False,
        about=tools.about,
    )


def _instructions(instructions: Any) -> list[Said]:
    digest = meaning_digest([SYSTEM, content_meaning(instructions)])
    return [Said(SYSTEM, digest, text=visible_text(instructions))] if instructions else []


def _input(raw: msgspec.Raw) -> list[Said]:
    if bytes(memoryview(raw)[:1]) != b"[":
        return read_item({"role": USER, "content": msgspec.json.decode(raw)}) if raw != NULL else []
    return [said for item in _items_decoder.decode(raw) for said in _items(item)]


def read_item(item: Any) -> list[Said]:
    """What one input item says; nothing for reasoning."""
    if not isinstance(item, dict):
        return [unreadable(item)]
    kind = text_of(item.get("type"))
    if kind == "reasoning":
        return []
    if kind == "message" or (not kind and "role" in item):
        return [_message(item)]
    if kind in _CALLS:
        return [_call(item, kind)]
    return [_other(item, kind)]


def _other(item: dict[str, Any], kind: str) -> Said:
    if kind == "item_reference":
        identity = text_of(item.get("id"))
        return Said(ASSISTANT, meaning_digest(["reference", identity]), refers=frozenset({identity}))
    answered = text_of(item.get("call_id")) or text_of(item.get("id"))  # a local shell's output has only the latter
    if answered and kind.endswith("_output"):
        meaning = ["output", kind, content_meaning(item.get("output"))]
        return Said(TOOL, meaning_digest(meaning), answers=(answered,), results=(result_text(item.get("output")),))
    return Said(ASSISTANT, meaning_digest({k: v for k, v in item.items() if k not in ("id", "status")}))


def _message(item: dict[str, Any]) -> Said:
    role = SYSTEM if item.get("role") == "developer" else text_of(item.get("role"))
    content = item.get("content")
    return Said(role, meaning_digest([role, content_meaning(content)]), text=spoken_text(role, content))


def _call(item: dict[str, Any], kind: str) -> Said:
    identity = text_of(item.get("call_id"))
    made = frozenset({identity} if identity else ())
    if kind != "function_call":
        plain = {k: v for k, v in item.items() if k not in ("id", "call_id", "status")}
        return Said(ASSISTANT, meaning_digest(plain), made=made)
    text = text_of(item.get("arguments"))
    name, arguments = _name(item), parse_arguments(text)
    calls = (ToolCall(name, arguments, identity or None),) if name and arguments is not None else ()
    return Said(ASSISTANT, meaning_digest(["call", call_meaning(name, text)]), calls=calls, made=made)


def _name(item: dict[str, Any]) -> str:
    """A tool's name; one in a namespace is another than the one that bears the bare name."""
    namespace, name = text_of(item.get("namespace")), text_of(item.get("name"))
    return f"{namespace}.{name}" if namespace and name else name


def _read_tool(tool: dict[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if tool.get("type") == "function" and isinstance(tool.get("name"), str):
        yield tool["name"], mapping(tool.get("parameters"))


_system = message_memo(_instructions)
_items = message_memo(read_item)
_tools = tools_memo(_read_tool)


# Answers

_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta"})
_ARGUMENTS = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_OF_CALLS = _ARGUMENTS | {
    "response.function_call_arguments.done",
    "response.output_item.added",
    "response.output_item.done",
}
_LAST = frozenset({"response.completed", "response.incomplete", "response.failed", "response.done"})
_READ = frozenset({*_TEXT, *_REASONING, *_OF_CALLS, *_LAST, "message", "error", "response.created"})


class ResponsesStream(EventStream):
    """Turns the bytes of a streamed answer into turn events, several calls interleaved."""

    read = _READ

    def __init__(self) -> None:
        super().__init__()
        self._calls = OpenCalls()
        self._known: dict[tuple[str, Any], int] = {}
        """Calls by their item's id, their own id and their place; some endpoints give all items the same place."""
        self._began = False

    def finish(self) -> list[TurnEvent]:
        """The stream is over. A call that is still open then was broken off: it is none."""
        return self._end(None)

    def _payload(self, payload: dict[str, Any], kind: str) -> list[TurnEvent]:
        delta = text_of(payload.get("delta"))
        if kind in _TEXT or kind in _REASONING:
            return [(TextDelta if kind in _TEXT else ReasoningDelta)(delta)] if delta else []
        if kind in _OF_CALLS:
            return self._of_call(payload, kind, delta)
        if kind in _LAST:
            return self._last(mapping(payload.get("response")), kind)
        if kind == "response.created":
            return self.began(mapping(payload.get("response")))
        return self._end(FAILED) if kind == "error" else []

    def _of_call(self, payload: dict[str, Any], kind: str, delta: str) -> list[TurnEvent]:
        place = payload.get("output_index")
        if kind.startswith("response.output_item."):
            return self.item(place, mapping(payload.get("item")), done=kind.endswith("done"))
        index = self._find(item=payload.get("item_id"), place=place)
        if index is None and place is None and "item_id" not in payload:
            index = self._calls.latest
        if kind in _ARGUMENTS:
            return self._calls.more(index, delta)
        return self._calls.close(index, text_of(payload.get("arguments")))

    def _find(self, **told: Any) -> int | None:
        """The call that is known by the first of these."""
        keys = [(how, name) for how, name in told.items() if isinstance(name, (str, int)) and name != ""]
        return next((self._known[key] for key in keys if key in self._known), None)

    def began(self, response: dict[str, Any]) -> list[TurnEvent]:
        """The answer's id is known."""
        identity = text_of(response.get("id"))
        if self._began or not identity:
            return []
        self._began = True
        return [AnswerBegan(identity)]

    def item(self, place: Any, item: dict[str, Any], *, done: bool) -> list[TurnEvent]:
        """An item of the answer begins, or is complete."""
        kind, identity = text_of(item.get("type")), text_of(item.get("id"))
        events: list[TurnEvent] = []
        if identity and not done:
            events.append(ItemBegan(identity))
        name = _name(item) if kind in ("function_call", "custom_tool_call") else ""
        if kind in _OTHER_CALLS:
            name = kind
        if not name:
            return events
        call_id = text_of(item.get("call_id"))
        index = self._find(item=identity, call=call_id, **({} if identity or call_id or not done else {"place": place}))
        if index is None:
            index, named = self._calls.begin(name, call_id or None, free_text=kind != "function_call")
            events += named
        for key in (("item", identity), ("call", call_id), ("place", place)):
            if isinstance(key[1], int) or (isinstance(key[1], str) and key[1]):
                self._known[key] = index
        return events + (self._calls.close(index, text_of(item.get("arguments"))) if done else [])

    def _last(self, response: dict[str, Any], kind: str) -> list[TurnEvent]:
        if self._ended:
            return []
        events = self.began(response)
        for item in dicts(response.get("output")):  # agents act on these, announced or not
            events += self.item(None, item, done=True)
        told = mapping(response.get("usage"))
        if told:
            events.append(usage(told.get("input_tokens"), told.get("output_tokens")))
        status = text_of(response.get("status")) or kind.removeprefix("response.")
        return [*events, *self._end(FAILED if kind == "response.failed" else status)]

    def _end(self, reason: str | None) -> list[TurnEvent]:
        if self._ended:
            return []
        self._ended = True
        return [*self._calls.end(whole=reason not in (None, FAILED)), TurnEnd(reason)]


def read_answer(body: bytes) -> list[TurnEvent]:
    """The same events, from an answer that was not streamed."""
    payload = payload_of(body)
    if payload is None:
        return []
    stream = ResponsesStream()
    events = stream.began(payload)
    for index, item in enumerate(dicts(payload.get("output"))):
        events += stream.item(index, item, done=False)
        events += _texts(item)
        events += stream.item(index, item, done=True)
    status = text_of(payload.get("status")) or "completed"
    return events + stream._last({**payload, "output": []}, f"response.{status}")


def _texts(item: dict[str, Any]) -> list[TurnEvent]:
    """The text and the reasoning of a whole item."""
    if item.get("type") == "message":
        texts = [text_of(part.get("text")) or text_of(part.get("refusal")) for part in dicts(item.get("content"))]
        return [TextDelta(text) for text in texts if text]
    if item.get("type") == "reasoning":
        parts = [*dicts(item.get("summary")), *dicts(item.get("content"))]
        return [ReasoningDelta(text) for part in parts if (text := text_of(part.get("text")))]
    return []
