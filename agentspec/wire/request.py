"""One internal form for the requests of all APIs: what agentspec reads of them. The body itself goes on as it came.

Reading costs in proportion to what is new: messages are told apart as raw JSON, and one that was read before (the
history that comes again with every turn) is looked up by its hash instead of being parsed.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
import xxhash

from agentspec.errors import RequestError
from agentspec.trajectory import Said, meaning_digest

T = TypeVar("T")
R = TypeVar("R")

Schemas = Mapping[str, Mapping[str, Any]]
"""JSON Schema of the parameters, by tool name."""

NULL = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A model request, whatever API it came through.

    Attributes:
        said: its messages; with `previous` or `conversation` only what is new.
        tools: the function tools it offers; do not change them, they are shared between turns.
        may_call: whether the model may call a tool at all (`tool_choice`).
        one_call: whether an answer makes one call at most (`parallel_tool_calls` is off).
        previous: id of the answer that it continues, kept by the endpoint.
        conversation: id of the conversation that it continues, kept by the endpoint.
        background: whether the endpoint answers later, to another request.
        kept: whether the endpoint keeps the answer, so that later requests need not repeat it.
        same_tools: whether it leaves its tools out because the endpoint knows them from before.
        about: what it says of its tools, by name; shared between turns like `tools`.
    """

    api: str
    model: str
    said: Sequence[Said]
    tools: Schemas = field(default_factory=dict)
    may_call: bool = True
    one_call: bool = False
    stream: bool = False
    previous: str | None = None
    conversation: str | None = None
    background: bool = False
    kept: bool = False
    same_tools: bool = False
    about: Mapping[str, str] = field(default_factory=dict)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Read a request's body.

    Raises:
        RequestError: the body is no JSON (`invalid_json`).
        msgspec.ValidationError: JSON of another shape; the endpoint should judge it, not we.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        if _leniently_json(body):
            raise msgspec.ValidationError(str(error)) from error
        raise RequestError(f"the request body is not valid JSON: {error}", code="invalid_json") from error


def _leniently_json(body: bytes) -> bool:
    """Whether other readers take it for JSON: `NaN`, or half an emoji that JavaScript cut off (a lone surrogate)."""
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def parsed(raw: bytes | msgspec.Raw) -> Any:
    """The value of raw JSON, read leniently; None where it cannot be read."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(bytes(raw))
    except (ValueError, RecursionError):
        return None


class Memo(Generic[R]):
    """Remembers what raw JSON was read as; the least recently used is forgotten. Any thread may ask.

    The hash is keyed by a secret of this process: nobody can write two messages that are taken for one another.
    """

    def __init__(self, read: Callable[[Any], R], weight_bytes: Callable[[R, int], int], limit_bytes: int) -> None:
        self._read = read
        self._weight = weight_bytes
        self._limit_bytes = limit_bytes
        self._seed = secrets.randbits(64)
        self._known: OrderedDict[bytes, tuple[R, int]] = OrderedDict()
        self._held_bytes = 0
        self._lock = threading.Lock()

    def __call__(self, raw: msgspec.Raw) -> R:
        """What this raw JSON says."""
        key = xxhash.xxh3_128_digest(raw, self._seed)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known[0]
        found = self._read(parsed(raw))
        with self._lock:
            self._keep(key, found, self._weight(found, memoryview(raw).nbytes))
        return found

    def _keep(self, key: bytes, found: R, weight_bytes: int) -> None:
        if key in self._known:
            return
        self._known[key] = (found, weight_bytes)
        self._held_bytes += weight_bytes
        while self._held_bytes > self._limit_bytes and len(self._known) > 1:
            _, (_, dropped_bytes) = self._known.popitem(last=False)
            self._held_bytes -= dropped_bytes


_ENTRY_BYTES = 600
"""About what a remembered message costs without its calls and its texts."""


def message_memo(read: Callable[[Any], Sequence[Said]]) -> Memo[tuple[Said, ...]]:
    """Remembers what messages say: their texts, cut; only those with calls hold on to all that they were read from."""

    def weight_bytes(said: tuple[Said, ...], raw_bytes: int) -> int:
        names = (name for one in said for name in (one.role, *one.made, *one.refers, *one.answers))
        texts_bytes = sum(sys.getsizeof(text) for one in said for text in (one.text, *one.results))
        calls_bytes = 4 * raw_bytes if any(one.calls for one in said) else 0
        return _ENTRY_BYTES + 4 * sum(map(len, names)) + texts_bytes + calls_bytes

    return Memo(lambda value: tuple(read(value)), weight_bytes, 64 * 2**20)


class Offered(dict[str, Mapping[str, Any]]):
    """The schemas of a request's tools by name, and in `about` what is said of those that are described."""

    __slots__ = ("about",)

    def __init__(self) -> None:
        super().__init__()
        self.about: dict[str, str] = {}


def tools_memo(
    read: Callable[[dict[str, Any]], Iterable[tuple[str, Mapping[str, Any]]]],
    described: Callable[[dict[str, Any]], dict[str, Any]] = lambda tool: tool,
) -> Memo[Offered]:
    """Remembers the schemas of a request's tools; `described`: the part of a tool that holds its description."""

    def offered(value: Any) -> Offered:
        found, about = Offered(), dict[str, str]()
        for tool in value if isinstance(value, list) else ():
            for name, schema in read(tool) if isinstance(tool, dict) else ():
                found[name], about[name] = schema, text_of(described(tool).get("description"))
        found.about = {name: text for name, text in about.items() if text}
        return found

    return Memo(offered, lambda _, raw_bytes: _ENTRY_BYTES + 4 * raw_bytes, 64 * 2**20)


def unreadable(value: Any) -> Said:
    """A message that is none."""
    return Said("?", meaning_digest(value))


def text_of(value: Any) -> str:
    """The value, if it is text."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """The value, if it is an object."""
    return value if isinstance(value, dict) else {}
