"""A trajectory as bytes: compact in the database, as readable JSON in an exported file.

Texts travel as UTF-8 that lets lone surrogates pass: what an agent sent is kept, even where it is no proper text.
Reading makes plain data only; bytes that we have not written raise ValueError.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec

from agentspec.calls import ToolCall
from agentspec.recollection import Past
from agentspec.trajectory import Said

VERSION = 1
_HEAD = b"agentspec-past\x00" + bytes([VERSION])
_MAX_BYTES = 256 * 2**20
"""Longest record before it is compressed: nobody's few bytes may fill our memory."""


class _Call(msgspec.Struct, array_like=True):
    name: bytes
    arguments: bytes
    id: bytes | None


class _Message(msgspec.Struct, array_like=True):
    role: bytes
    digest: bytes
    calls: list[_Call]
    made: list[bytes]
    refers: list[bytes]
    answers: list[bytes]
    text: bytes
    results: list[bytes]
    failed: list[bytes]


class _Record(msgspec.Struct, array_like=True):
    trajectory: bytes
    scope: bytes
    outcome: float | None
    tools: bytes
    history: list[_Message]


def encode(past: Past) -> bytes:
    """The trajectory for the database; equal ones are equal bytes.

    Raises:
        ValueError: it is too long, or nested too deeply.
    """
    try:
        record = _Record(
            _bytes(past.trajectory),
            _bytes(past.scope),
            past.outcome,
            _json(past.tools),
            [_message(said) for said in past.history],
        )
        raw = msgspec.msgpack.encode(record)
    except (TypeError, RecursionError, OverflowError, msgspec.MsgspecError) as error:
        raise ValueError(f"this trajectory cannot be kept: {error}") from error
    if len(raw) > _MAX_BYTES:
        raise ValueError(f"this trajectory cannot be kept: it has {len(raw)} bytes, the most is {_MAX_BYTES}")
    return _HEAD + zlib.compress(raw)


def decode(blob: bytes) -> Past:
    """What `encode` was given.

    Raises:
        ValueError: these bytes are of another version, or of somebody else.
    """
    if not blob.startswith(_HEAD):
        raise ValueError("no record of a trajectory, or one of another version")
    try:
        inflate = zlib.decompressobj()
        raw = inflate.decompress(blob[len(_HEAD) :], _MAX_BYTES)
        if not inflate.eof or inflate.unused_data:
            raise ValueError("a record of a trajectory is cut off, or too long")
        record = msgspec.msgpack.decode(raw, type=_Record)
        tools = json.loads(_text(record.tools))
        if not isinstance(tools, dict):
            raise ValueError("a record's tools are none")
        history = tuple(_said(message) for message in record.history)
    except (zlib.error, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"a broken record of a trajectory: {error}") from error
    return Past(_text(record.trajectory), _text(record.scope), history, tools, record.outcome)


def _message(said: Said) -> _Message:
    return _Message(
        _bytes(said.role),
        said.digest,
        [_Call(_bytes(c.name), _json(c.arguments), None if c.id is None else _bytes(c.id)) for c in said.calls],
        _all_bytes(sorted(said.made)),
        _all_bytes(sorted(said.refers)),
        _all_bytes(said.answers),
        _bytes(said.text),
        _all_bytes(said.results),
        _all_bytes(sorted(said.failed)),
    )


def _said(message: _Message) -> Said:
    return Said(
        role=_text(message.role),
        digest=message.digest,
        calls=tuple(_call(call) for call in message.calls),
        made=frozenset(map(_text, message.made)),
        refers=frozenset(map(_text, message.refers)),
        answers=tuple(map(_text, message.answers)),
        text=_text(message.text),
        results=tuple(map(_text, message.results)),
        failed=frozenset(map(_text, message.failed)),
    )


def _call(call: _Call) -> ToolCall:
    arguments = json.loads(_text(call.arguments))
    if not isinstance(arguments, dict):
        raise ValueError("the arguments of a call are no object")
    return ToolCall(_text(call.name), arguments, None if call.id is None else _text(call.id))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _all_bytes(texts: Iterable[str]) -> list[bytes]:
    return [_bytes(text) for text in texts]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _json(value: Any) -> bytes:
    return _bytes(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=dict))


# The same as a line of readable JSON


class _CallLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    arguments: dict[str, Any]
    id: str | None = None


class _MessageLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    role: str
    digest: str
    text: str = ""
    calls: list[_CallLine] = []
    made: list[str] = []
    refers: list[str] = []
    answers: list[str] = []
    results: list[str] = []
    failed: list[str] = []


class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    version: int
    trajectory: str
    scope: str
    history: list[_MessageLine]
    tools: dict[str, dict[str, Any]] = {}
    outcome: float | None = None
    learnt_at: float | None = None


def to_line(past: Past, learnt_at: float | None = None) -> bytes:
    """The trajectory as one line of JSON, without the line's end. `learnt_at`: Unix time in seconds.

    Raises:
        ValueError: it is nested too deeply.
    """
    line = _Line(
        VERSION,
        past.trajectory,
        past.scope,
        [_message_line(said) for said in past.history],
        {name: dict(schema) for name, schema in past.tools.items()},
        past.outcome,
        learnt_at,
    )
    try:
        plain = msgspec.to_builtins(line)
        text = json.dumps(plain, ensure_ascii=False, default=dict)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"this trajectory cannot be told as JSON: {error}") from error
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate is no UTF-8, its escape is
        return json.dumps(plain, default=dict).encode()


def from_line(line: bytes | str) -> tuple[Past, float | None]:
    """What `to_line` was given.

    Raises:
        ValueError: the line is not of that form; the message says where.
    """
    try:
        read = msgspec.convert(json.loads(line), _Line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if read.version != VERSION:
        raise ValueError(f"version {read.version}, this agentspec reads version {VERSION}")
    if read.learnt_at is not None and not 0 <= read.learnt_at < math.inf:
        raise ValueError(f"learnt_at {read.learnt_at} is no time")
    history = tuple(_said_of_line(message) for message in read.history)
    return Past(read.trajectory, read.scope, history, read.tools, read.outcome), read.learnt_at


def _message_line(said: Said) -> _MessageLine:
    return _MessageLine(
        said.role,
        said.digest.hex(),
        said.text,
        [_CallLine(call.name, call.arguments, call.id) for call in said.calls],
        sorted(said.made),
        sorted(said.refers),
        list(said.answers),
        list(said.results),
        sorted(said.failed),
    )


def _said_of_line(line: _MessageLine) -> Said:
    return Said(
        role=line.role,
        digest=bytes.fromhex(line.digest),
        calls=tuple(ToolCall(call.name, call.arguments, call.id) for call in line.calls),
        made=frozenset(line.made),
        refers=frozenset(line.refers),
        answers=tuple(line.answers),
        text=line.text,
        results=tuple(line.results),
        failed=frozenset(line.failed),
    )
