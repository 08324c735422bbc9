"""Server-sent events: the same events, wherever the network cut the bytes."""

from __future__ import annotations

import json
import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentspec.sse import ServerSentEvent, SseDecoder

texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=12)
line_ends = st.sampled_from(["\n", "\r\n", "\r"])
lines = st.one_of(
    texts.map(lambda text: f"data: {text}"),
    texts.map(lambda text: f"data:{text}"),
    texts.map(lambda text: f": {text}"),
    texts.map(lambda text: f"event: {text}"),
    st.sampled_from(["", "", "data", "id: 7", "retry: 10", "data: {\u2028\u0085}", "\ufeffdata: late bom", " data: x"]),
    texts,
)
streams = st.lists(st.tuples(lines, line_ends), max_size=14)


def decode(chunks: list[bytes]) -> list[ServerSentEvent]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def by_the_book(lines: list[str]) -> list[ServerSentEvent]:
    """The standard's algorithm over lines that are whole."""
    events, data, kind = [], [], ""
    for line in lines:
        if not line:
            if data:
                events.append(ServerSentEvent(kind or "message", "\n".join(data)))
            data, kind = [], ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            kind = value
    return events


@given(stream=streams, bom=st.booleans())
@example(stream=[("data: a", "\r\n"), ("", "\n")], bom=True)
@example(stream=[("data: a", "\n"), ("", "\n"), ("data: ", "\n"), ("", "\n"), ("data: b", "\n"), ("", "\n")], bom=False)
@example(
    stream=[("data: a", "\n"), ("", "\n"), ("", "\n"), ("data: b", "\n"), ("data: c", "\n"), ("", "\n")], bom=False
)
def test_events_are_those_of_the_standard(stream: list[tuple[str, str]], bom: bool) -> None:
    text = ("\ufeff" if bom else "") + "".join(line + end for line, end in stream)
    whole = re.split("\r\n|\n|\r", text.removeprefix("\ufeff"))[:-1]
    assert decode([text.encode()]) == by_the_book(whole)


@given(stream=streams, bom=st.booleans(), data=st.data())
@example(stream=[("data: a", "\r\n"), ("", "\n"), ("data: b", "\n"), ("", "\n")], bom=False, data=None)
def test_cuts_change_nothing(stream: list[tuple[str, str]], bom: bool, data: st.DataObject | None) -> None:
    raw = (b"\xef\xbb\xbf" if bom else b"") + "".join(line + end for line, end in stream).encode()
    if data is None:
        chunks = [raw[i : i + 1] for i in range(len(raw))]
    else:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
        chunks = [raw[a:b] for a, b in pairwise([0, *cuts, len(raw)])]
    assert decode(chunks) == decode([raw])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_byte_by_byte_is_as_good_as_whole(end: bytes) -> None:
    raw = b"".join(b"data: %d%sid: 1%s%s" % (n, end, end, end) for n in range(3)) + b": end" + end
    assert [event.data for event in decode([raw[i : i + 1] for i in range(len(raw))])] == ["0", "1", "2"]


def test_line_separators_inside_json_are_data() -> None:
    value = {"text": "a\u2028b\u2029c\u0085d\x0b\x0c\x1ce"}
    raw = b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"
    assert [json.loads(event.data, strict=False) for event in decode([raw])] == [value]


def test_bytes_that_are_no_utf8_do_not_stop_the_stream() -> None:
    assert [event.data for event in decode([b"data: \xff\xfe\n\ndata: b\n\n"])] == ["\ufffd\ufffd", "b"]


def test_an_event_without_its_blank_line_is_not_told() -> None:
    assert decode([b"data: a\n"]) == []


def test_a_megabyte_in_small_pieces_takes_no_quadratic_time() -> None:
    began = time.process_time()
    decoder = SseDecoder()
    for _ in range(20_000):
        decoder.feed(b"x" * 100)
    assert time.process_time() - began < 2.0


@given(stream=st.lists(st.lists(lines, min_size=1, max_size=3), max_size=6), end=line_ends)
@example(stream=[["event: a"], ["data: b"]], end="\n")
@example(stream=[["data: a\rdata: b"]], end="\n")
def test_chunks_that_are_whole_events_say_the_same_as_the_stream_in_one(stream: list[list[str]], end: str) -> None:
    frames = ["".join(line + end for line in [*event, ""]).encode() for event in stream]
    assert decode(frames) == decode([b"".join(frames)])
