"""Anthropic's Messages API without I/O: requests read, streams and answers turned into turn events.

`tool_use` blocks are calls; those that the provider carries out (`server_tool_use`, `mcp_tool_use`) are not. Text that
stands beside tool results (clients add reminders there) belongs to them: the user has not spoken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from agentspec.calls import ToolCall
from agentspec.events import FAILED, AnswerBegan, ReasoningDelta, TextDelta, TurnEnd, TurnEvent
from agentspec.trajectory import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    Said,
    call_meaning,
    content_meaning,
    meaning_digest,
    result_text,
    spoken_text,
    visible_text,
)
from agentspec.wire.answers import EventStream, OpenCalls, count, dicts, payload_of, usage
from agentspec.wire.request import NULL, TurnRequest, decode, mapping, message_memo, text_of, tools_memo, unreadable

_NOT_CONTENT = frozenset({"thinking", "redacted_thinking", "tool_use"})
_CHANGES_EACH_TIME = "x-anthropic-billing-header:"
"""How a system block begins that Claude Code writes anew for every request."""


class _Body(msgspec.Struct):
    model: str
    messages: list[msgspec.Raw]
    system: Any = None
    tools: msgspec.Raw = NULL
    tool_choice: Any = None
    stream: bool | None = False
    thread: Any = None


_body_decoder = msgspec.json.Decoder(_Body)


def read_request(body: bytes) -> TurnRequest:
    """Read a request's body.

    Raises:
        RequestError: the body is no JSON (`invalid_json`).
        msgspec.ValidationError: JSON of another shape; the endpoint should judge it, not we.
    """
    request = decode(_body_decoder, body)
    choice, thread = mapping(request.tool_choice), mapping(request.thread)
    previous = text_of(thread.get("previous_message_id")) or None
    tools = _tools(request.tools)
    return TurnRequest(
        api="messages",
        model=request.model,
        said=[*_system(request.system), *(said for raw in request.messages for said in _messages(raw))],
        tools=tools,
        may_call=choice.get("type") != "none",
        one_call=choice.get("disable_parallel_tool_use") is True,
        stream=bool(request.stream),
        previous=previous,
        kept=bool(thread),
        same_tools=previous is not None and request.tools == NULL,
        about=tools.about,
    )


def _system(system: Any) -> list[Said]:
    if isinstance(system, list):
        system = [block for block in system if not text_of(mapping(block).get("text")).startswith(_CHANGES_EACH_TIME)]
    digest = meaning_digest([SYSTEM, content_meaning(system)])
    return [Said(SYSTEM, digest, text=visible_text(system))] if system else []


def read_message(message: Any) -> list[Said]:
    """What one message says: a message that holds tool results is one for each of them."""
    if not isinstance(message, dict):
        return [unreadable(message)]
    role, content = text_of(message.get("role")), message.get("content")
    blocks = dicts(content)
    results = [block for block in blocks if block.get("type") == "tool_result"]
    if results:
        beside = [block for block in blocks if block.get("type") != "tool_result"]
        return [_result(block, beside if block is results[-1] else []) for block in results]
    if role == ASSISTANT:
        return [_assistant([{"type": "text", "text": content}] if isinstance(content, str) else blocks)]
    return [Said(role, meaning_digest([role, content_meaning(content)]), text=spoken_text(role, content))]


def _result(block: dict[str, Any], beside: list[dict[str, Any]]) -> Said:
    identity = text_of(block.get("tool_use_id"))
    content, is_error = block.get("content"), block.get("is_error")
    meaning = [TOOL, content_meaning(content), bool(is_error), content_meaning(beside)]
    answers = (identity,) if identity else ()
    return Said(
        TOOL,
        meaning_digest(meaning),
        answers=answers,
        text=visible_text(beside),
        results=(result_text(content),) if answers else (),
        failed=frozenset(answers) if is_error is True else frozenset(),
    )


def _assistant(blocks: list[dict[str, Any]]) -> Said:
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    rest = [block for block in blocks if text_of(block.get("type")) not in _NOT_CONTENT]
    meaning = [ASSISTANT, content_meaning(rest), [call_meaning(use.get("name"), use.get("input")) for use in uses]]
    calls, made = tuple(_calls(uses)), frozenset(_ids(uses))
    return Said(ASSISTANT, meaning_digest(meaning), calls, made, text=visible_text(rest))


def _calls(uses: list[dict[str, Any]]) -> Iterable[ToolCall]:
    for use in uses:
        if isinstance(use.get("name"), str) and isinstance(use.get("input"), dict):
            yield ToolCall(use["name"], use["input"], text_of(use.get("id")) or None)


def _ids(uses: list[dict[str, Any]]) -> Iterable[str]:
    return (use["id"] for use in uses if isinstance(use.get("id"), str))


def _read_tool(tool: dict[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if isinstance(tool.get("name"), str):
        yield tool["name"], mapping(tool.get("input_schema"))


_messages = message_memo(read_message)
_tools = tools_memo(_read_tool)


# Answers

_READ = frozenset(
    {
        *("message", "message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop", "error"),
    }
)


class MessagesStream(EventStream):
    """Turns the bytes of a streamed answer into turn events, several calls interleaved."""

    read = _READ

    def __init__(self) -> None:
        super().__init__()
        self._calls = OpenCalls()
        self._blocks: dict[Any, int | None] = {}
        """The call that began last under an index of the endpoint's; some give every block the same one, or none."""
        self._given: dict[Any, str] = {}
        """Inputs that came whole with the start of their block."""
        self._prompt_tokens = 0
        self._reason: str | None = None

    def finish(self) -> list[TurnEvent]:
        """The stream is over. A call that is still open then was broken off: it is none."""
        return self._end(self._reason)

    def _payload(self, payload: dict[str, Any], kind: str) -> list[TurnEvent]:
        key = payload.get("index")
        if isinstance(key, (list, dict)):
            return []
        if kind == "content_block_delta":
            return self._delta(key, mapping(payload.get("delta")))
        if kind == "content_block_start":
            return self._start(key, mapping(payload.get("content_block")))
        if kind == "content_block_stop":
            return self._calls.close(self._blocks.get(key), self._given.get(key))
        return self._of_message(payload, kind)

    def _of_message(self, payload: dict[str, Any], kind: str) -> list[TurnEvent]:
        if kind == "message_start":
            message = mapping(payload.get("message"))
            told = mapping(message.get("usage"))
            self._prompt_tokens = _prompt_tokens(told)
            return [*_begun(message), *([usage(self._prompt_tokens, told.get("output_tokens"))] if told else [])]
        if kind == "message_delta":
            return self._message_delta(payload)
        if kind == "message_stop":
            return self._end(self._reason or "end_turn")
        return self._end(FAILED) if kind == "error" else []

    def _start(self, key: Any, block: dict[str, Any]) -> list[TurnEvent]:
        self._blocks[key] = None
        self._given.pop(key, None)
        name = text_of(block.get("name")) if block.get("type") == "tool_use" else ""
        if not name:
            return [TextDelta(text)] if (text := text_of(block.get("text"))) else []
        if isinstance(block.get("input"), dict) and block["input"]:
            self._given[key] = msgspec.json.encode(block["input"]).decode()
        self._blocks[key], events = self._calls.begin(name, text_of(block.get("id")) or None)
        return events

    def _delta(self, key: Any, delta: dict[str, Any]) -> list[TurnEvent]:
        kind = delta.get("type")
        if kind == "input_json_delta":
            return self._calls.more(self._blocks.get(key), text_of(delta.get("partial_json")))
        if kind == "text_delta" and (text := text_of(delta.get("text"))):
            return [TextDelta(text)]
        if kind == "thinking_delta" and (text := text_of(delta.get("thinking"))):
            return [ReasoningDelta(text)]
        return []

    def _message_delta(self, payload: dict[str, Any]) -> list[TurnEvent]:
        self._reason = text_of(mapping(payload.get("delta")).get("stop_reason")) or self._reason
        told = mapping(payload.get("usage"))
        prompt_tokens = _prompt_tokens(told) or self._prompt_tokens
        return [usage(prompt_tokens, told.get("output_tokens"))] if told else []

    def _end(self, reason: str | None) -> list[TurnEvent]:
        if self._ended:
            return []
        self._ended = True
        return [*self._calls.end(whole=False), TurnEnd(reason)]


def read_answer(body: bytes) -> list[TurnEvent]:
    """The same events, from an answer that was not streamed."""
    payload = payload_of(body)
    if payload is None or payload.get("type") == "error":
        return []
    events = _begun(payload)
    calls = OpenCalls()
    for block in dicts(payload.get("content")):
        if text := text_of(block.get("text")):
            events.append(TextDelta(text))
        elif thinking := text_of(block.get("thinking")):
            events.append(ReasoningDelta(thinking))
        elif block.get("type") == "tool_use" and (name := text_of(block.get("name"))):
            index, named = calls.begin(name, text_of(block.get("id")) or None)
            events += [*named, *calls.close(index, msgspec.json.encode(mapping(block.get("input"))).decode())]
    told = mapping(payload.get("usage"))
    if told:
        events.append(usage(_prompt_tokens(told), told.get("output_tokens")))
    return [*events, TurnEnd(text_of(payload.get("stop_reason")) or "end_turn")]


def _begun(message: dict[str, Any]) -> list[TurnEvent]:
    return [AnswerBegan(identity)] if (identity := text_of(message.get("id"))) else []


def _prompt_tokens(told: dict[str, Any]) -> int:
    """All tokens of the prompt, those from and for the provider's cache as well."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(count(told.get(name)) for name in names)
