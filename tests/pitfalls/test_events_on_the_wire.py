"""Wire and streaming, row 8: events are bytes to the relay, and one thing to the reader wherever they were cut."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.pitfalls.playing import fetch, read, streams
from tests.wire.answers import CALL, TEXT, Answer, Part, expected, heard
from tests.wire.dialects import Dialect

pytestmark = pytest.mark.anyio

ODD = "a\u2028b\u2029c\u0085d\x0b\x0c\x1c e\ufeff\U0001f600"
ANSWER = Answer(
    (Part(TEXT, ("Zür", ODD)), Part(CALL, ('{"q"', f': "{ODD[:7]}', '"}'), "look_up", "call_1")), order=(0, 1, 1, 0)
)


def comments(data: bytes) -> bytes:
    return data.replace(b"\n\n", b"\n\n: keep-alive\n\n:\n")


def multi_line(data: bytes) -> bytes:
    """Each payload over two `data:` lines, cut at a place where JSON may have white space."""
    return data.replace(b", ", b",\ndata: ", 40)


def other_fields(data: bytes) -> bytes:
    return data.replace(b"data: ", b"id: 7\nretry: 10\nx-odd: 1\ndata:", 5)


def unknown_events(data: bytes) -> bytes:
    return data.replace(b"\n\n", b'\n\nevent: odd.kind\ndata: {"type": "odd.kind", "index": 0, "choices": 5}\n\n', 6)


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda data: data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "CR": lambda data: data.replace(b"\n", b"\r"),
    "comments": comments,
    "multi-line data": multi_line,
    "other fields": other_fields,
    "unknown events": unknown_events,
    "byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "comments and CRLF": lambda data: comments(data).replace(b"\n", b"\r\n"),
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_stream_passes_unchanged_in_every_form_and_says_the_same(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, form: str
) -> None:
    """Row: "`aiter_lines()` splits a JSON string at U+2028/U+0085; ... CRLF, comments, multi-line `data:`"."""
    data = FORMS[form](dialect.stream(ANSWER))
    endpoint.answer = streams(*(data[at : at + 50] for at in range(0, len(data), 50)))
    got = await fetch(client, dialect.path, dialect.request())
    assert got.body == data
    told, wanted = heard(read(dialect, got.body, True)), expected(ANSWER)
    assert (told.text, told.calls, told.usage) == (wanted.text, wanted.calls, wanted.usage)


@pytest.mark.parametrize("form", ["as it is", "CRLF"])
async def test_a_stream_cut_at_every_single_byte_is_the_same_stream(
    endpoint: Any, client: httpx.AsyncClient, turns: Any, dialect: Dialect, form: str
) -> None:
    """Row: "an event cut at any byte", also inside a character and between CR and LF."""
    data = FORMS[form](dialect.stream(Answer(ANSWER.parts[1:])))
    endpoint.answer = streams(*(data[at : at + 1] for at in range(len(data))))
    got = await fetch(client, dialect.path, dialect.request())
    assert got.body == data
    assert [turn["calls"] for turn in turns()] == [1]


def test_every_cut_in_two_tells_the_same(dialect: Dialect) -> None:
    """Row: "an event cut at any byte"."""
    data = dialect.stream(ANSWER, "\r\n")
    whole = read(dialect, data, True)
    for cut in range(len(data)):
        stream = dialect.api.open_stream()
        parts = [event for a, b in pairwise((0, cut, len(data))) for event in stream.feed(data[a:b])]
        assert [*parts, *stream.finish()] == whole, f"cut at {cut}"


@pytest.mark.parametrize("rest", [b"", b"\xff\xfe\x00", b"data: {", b"\n\n\n\n", b"data: " + b"[" * 100_000 + b"\n\n"])
async def test_bytes_that_are_no_events_pass(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, rest: bytes
) -> None:
    """Row 8, the other way round: what no reader understands arrives all the same, and harms no reader."""
    data = rest + b"\n\n" + dialect.stream(ANSWER) + rest
    endpoint.answer = streams(data)
    got = await fetch(client, dialect.path, dialect.request())
    assert got.body == data
    assert heard(read(dialect, got.body, True)).calls == expected(ANSWER).calls
