"""Which conversation is this? What each message says, and hashes of message prefixes; no state, no I/O.

A message's digest covers what it means, not how a framework wrote it: arguments parsed, call ids left out
(engines reuse them, frameworks rename them), `developer` = `system`, a lone text part = its text, no reasoning
(many frameworks drop it), no cache marks. The chain value at i covers messages 0..i, so equal values mean equal
prefixes. The APIs in `agentspec.wire` read their messages into this one form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentspec.calls import ToolCall, parse_arguments

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"

KEPT_CHARS = 256 * 1024
"""A longer text is kept as its first half and its last half of this: nobody recalls 20 MB of output word by word."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message: who spoke, and what of it counts.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`; an unknown one as it is.
        digest: hash of what it says, 16 bytes.
        calls: the tool calls it makes; one whose arguments are no JSON object is left out.
        made: ids of all calls it makes.
        refers: ids of parts of answers that stand here by reference only.
        answers: ids of the calls whose results it holds.
        text: what it visibly says, for memory; of a tool's message what stands beside the results.
        results: the texts of the results, one for each of `answers`.
        failed: those of `answers` whose result says that it is an error.

    Texts may hold lone surrogates and are cut (`KEPT_CHARS`). They take no part in comparisons: the digest does.
    """

    role: str
    digest: bytes
    calls: tuple[ToolCall, ...] = ()
    made: frozenset[str] = frozenset()
    refers: frozenset[str] = frozenset()
    answers: tuple[str, ...] = ()
    text: str = field(default="", compare=False, repr=False)
    results: tuple[str, ...] = field(default=(), compare=False, repr=False)
    failed: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def makes_calls(self) -> bool:
        """Whether the agent calls tools here, readable or not."""
        return bool(self.calls or self.made)


def chain(messages: Iterable[Said], seed: str = "") -> list[bytes]:
    """Hash of every prefix: element i covers messages 0..i. `seed` keeps tenants and models apart."""
    value = hashlib.blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    values = []
    for message in messages:
        value = hashlib.blake2b(value + message.digest, digest_size=16).digest()
        values.append(value)
    return values


def calls_in(messages: Sequence[Said]) -> list[ToolCall]:
    """The tool calls of several messages, in order."""
    return [call for message in messages for call in message.calls]


def answered_ids(messages: Sequence[Said]) -> list[str]:
    """Ids of the calls whose results stand in these messages, in order."""
    return [identity for message in messages for identity in message.answers]


def depth(messages: Sequence[Said]) -> int:
    """How many times the agent has called tools since the user last spoke."""
    return sum(message.makes_calls for message in since_the_user_spoke(messages))


def since_the_user_spoke(messages: Sequence[Said]) -> Sequence[Said]:
    """The messages after the user's last one."""
    last = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == USER), -1)
    return messages[last + 1 :]


# What the readers of the APIs share


def meaning_digest(meaning: Any) -> bytes:
    """Hash of a JSON value (16 bytes), whatever order its keys came in."""
    try:
        raw = msgspec.json.encode(meaning, order="deterministic")
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        raw = repr(meaning).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=16).digest()


def content_meaning(content: Any) -> Any:
    """What a message's content says: a lone text part is its text, a big part (an image) is its hash."""
    if isinstance(content, list):
        parts = [_part(part) for part in content]
        return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    return content


def _part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    if (text := _part_text(part)) is not None:
        return text
    plain = {name: value for name, value in part.items() if name != "cache_control"}
    return {"type": part.get("type"), "hash": meaning_digest(plain).hex()}


def _part_text(part: Any) -> str | None:
    """The text of a text part."""
    if isinstance(part, str):
        return part
    told = part.get("text") if isinstance(part, Mapping) else None
    return told if isinstance(told, str) and part.get("type") in ("text", "input_text", "output_text") else None


def visible_text(content: Any) -> str:
    """The text of a message's content: all text parts, a line each; nothing for images and reasoning."""
    parts = content if isinstance(content, list) else [content]
    return _cut("\n".join(text for part in parts if (text := _part_text(part)) is not None))


def spoken_text(role: str, content: Any) -> str:
    """The visible text where somebody speaks; a tool's message says its text as a result."""
    return visible_text(content) if role in (SYSTEM, USER, ASSISTANT) else ""


def result_text(content: Any) -> str:
    """The text of a tool's result: its text parts; a JSON value that is no text as compact JSON."""
    if content is None or _part_text(content) is not None or _are_parts(content):
        return visible_text(content)
    return _cut(_compact_json(content))


def _are_parts(content: Any) -> bool:
    """Whether it is content as the APIs know it, of which only the text counts, rather than any other JSON."""
    if isinstance(content, Mapping):
        return content.get("type") == "computer_screenshot"
    return isinstance(content, list) and all(
        isinstance(part, str) or (isinstance(part, Mapping) and isinstance(part.get("type"), str)) for part in content
    )


def _compact_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        pass
    try:
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return ""


def _cut(text: str) -> str:
    """Its beginning and its end; the line break between them keeps the seam from looking like a word."""
    half = KEPT_CHARS // 2
    return text if len(text) <= KEPT_CHARS else f"{text[:half]}\n{text[-half:]}"


def call_meaning(name: Any, arguments: Any) -> Any:
    """A call as frameworks agree on it: its name and its arguments parsed, 1.0 written as 1, no ids."""
    if not isinstance(arguments, Mapping):
        text = str(arguments or "")
        parsed = parse_arguments(text)
        return [name, text if parsed is None else plain_numbers(parsed)]
    return [name, plain_numbers(arguments)]


def plain_numbers(value: Any) -> Any:
    """The same JSON with integral floats as integers: JavaScript knows no difference."""
    if isinstance(value, dict):
        return {k: plain_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def same_calls(one: Sequence[ToolCall], other: Sequence[ToolCall]) -> bool:
    """Whether two answers made the same calls, ids aside."""
    return len(one) == len(other) and all(map(_same_call, one, other))


def _same_call(one: ToolCall, other: ToolCall) -> bool:
    return one.name == other.name and same_json(one.arguments, other.arguments)


def same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1.0 is 1; true is not, though Python has it so."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
