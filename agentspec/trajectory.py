"""Which conversation is this? Hashes of message prefixes, without state or I/O.

A message's digest covers what it means, not how a framework wrote it: arguments parsed, call ids left out
(engines reuse them, frameworks rename them), `developer` = `system`, a lone text part = its text, no reasoning
(many frameworks drop it). The chain value at i covers messages 0..i, so equal values mean equal prefixes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentspec.calls import ToolCall, canonical_json, parse_arguments

Message = Mapping[str, Any]


def chain(messages: Iterable[Message], seed: str = "") -> list[str]:
    """Hash of every prefix: element i covers messages 0..i. `seed` keeps tenants and models apart."""
    value = hashlib.blake2b(seed.encode(), digest_size=16).digest()
    values = []
    for message in messages:
        value = hashlib.blake2b(value + digest(message), digest_size=16).digest()
        values.append(value.hex())
    return values


def digest(message: Message) -> bytes:
    """Hash of what one message says (16 bytes)."""
    role = message.get("role")
    meaning: dict[str, Any] = {"role": "system" if role == "developer" else role}
    if text := _content(message.get("content")):
        meaning["content"] = text
    if isinstance(message.get("name"), str):
        meaning["name"] = message["name"]
    if calls := said_calls(message):
        meaning["calls"] = calls
    try:
        text = canonical_json(meaning)
    except (TypeError, ValueError):
        text = repr(meaning)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _content(content: Any) -> Any:
    if isinstance(content, list):
        parts = [_part(part) for part in content]
        return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    return content


def _part(part: Any) -> Any:
    """A text part is its text; a big part (an image) is its hash."""
    if not isinstance(part, Mapping):
        return part
    if part.get("type") in ("text", "input_text", "output_text") and isinstance(part.get("text"), str):
        return part["text"]
    raw = json.dumps(part, sort_keys=True, default=repr).encode("utf-8", "surrogatepass")
    return {"type": part.get("type"), "hash": hashlib.blake2b(raw, digest_size=16).hexdigest()}


def said_calls(message: Message) -> list[Any]:
    """An assistant message's calls as frameworks agree on them: names and arguments, 1.0 written as 1, no ids."""
    raw = message.get("tool_calls")
    return [_said(call) for call in raw if isinstance(call, Mapping)] if isinstance(raw, list) else []


def _said(call: Mapping[str, Any]) -> Any:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return {k: v for k, v in call.items() if k not in ("id", "index")}
    text = str(function.get("arguments") or "")
    arguments = parse_arguments(text)
    return [function.get("name"), text if arguments is None else plain_numbers(arguments)]


def plain_numbers(value: Any) -> Any:
    """The same JSON with integral floats as integers: JavaScript knows no difference."""
    if isinstance(value, dict):
        return {k: plain_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def calls_of(message: Message) -> list[ToolCall]:
    """The tool calls of an assistant message; one whose arguments are no JSON object is left out."""
    found: list[ToolCall] = []
    raw = message.get("tool_calls")
    for call in raw if isinstance(raw, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            continue
        arguments = parse_arguments(str(function.get("arguments") or ""))
        if arguments is not None:
            found.append(ToolCall(function["name"], arguments, call.get("id")))
    return found


def calls_in(messages: Sequence[Message]) -> list[ToolCall]:
    """The tool calls of several messages, in order."""
    return [call for message in messages for call in calls_of(message)]


def answered_ids(messages: Sequence[Message]) -> list[str]:
    """Ids of the calls whose results stand in these messages, in order."""
    return [
        str(message["tool_call_id"])
        for message in messages
        if message.get("role") == "tool" and message.get("tool_call_id")
    ]


def call_ids(messages: Sequence[Message]) -> frozenset[str]:
    """Ids of the calls that the assistant made in these messages."""
    found = set()
    for message in messages:
        raw = message.get("tool_calls")
        for call in raw if isinstance(raw, list) else []:
            if isinstance(call, Mapping) and isinstance(call.get("id"), str):
                found.add(call["id"])
    return frozenset(found)


def depth(messages: Sequence[Message]) -> int:
    """How many times the agent has called tools since the user last spoke."""
    return sum(bool(message.get("tool_calls")) for message in since_the_user_spoke(messages))


def since_the_user_spoke(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages after the user's last one."""
    last = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].get("role") == "user"), -1)
    return messages[last + 1 :]
