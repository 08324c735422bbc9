"""Plausible answers and streams, drawn by hypothesis: what endpoints send, and what they should not send."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.wire.answers import CALL, CUSTOM, PROVIDER, REASONING, TEXT, Answer, Part
from tests.wire.dialects import Dialect, frame

chars = st.characters(exclude_categories=("Cs",)) | st.sampled_from('{}[]"\\\u2028\u2029\u0085\r\n\x0b: ,')
texts = st.text(chars, max_size=12)
names = st.sampled_from(["f", "get_order", "delete-all", "mcp__server__tool", "Zürich", "data: x"])
scalars = texts | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()
values = st.recursive(
    scalars | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(chars, max_size=5), values, max_size=3)
providers = st.sampled_from(
    ["web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"]
)


@st.composite
def pieces(draw: st.DrawFn, text: str) -> tuple[str, ...]:
    """A text cut anywhere."""
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=4))
    return tuple(text[a:b] for a, b in pairwise([0, *sorted(cuts), len(text)]) if a < b)


@st.composite
def parts(draw: st.DrawFn, kind: str, number: int) -> Part:
    if kind in (TEXT, REASONING):
        return Part(kind, draw(pieces(draw(texts.filter(bool)))))
    identity = f"call_{number}"
    if kind == CALL:
        spaces = draw(st.sampled_from([None, (",", ":"), (" ,\n", " : ")]))
        written = json.dumps(draw(arguments), ensure_ascii=draw(st.booleans()), separators=spaces)
        return Part(CALL, draw(pieces(written)), draw(names), identity)
    if kind == CUSTOM:
        return Part(CUSTOM, draw(pieces(draw(texts))), draw(names), identity)
    return Part(PROVIDER, ('{"q": ', "1}"), draw(providers), identity)


@st.composite
def answers(draw: st.DrawFn, dialect: Dialect) -> Answer:
    """An answer in this API's reach, its parts interleaved as they may be."""
    kinds = draw(st.lists(st.sampled_from(sorted(dialect.parts)), max_size=5))
    spoken = tuple(draw(parts(kind, number)) for number, kind in enumerate(kinds))
    tokens = draw(st.tuples(st.integers(0, 2**31), st.integers(0, 2**31)))
    return Answer(spoken, *tokens, order=tuple(draw(st.lists(st.integers(0, 5), max_size=30))))


json_noise = st.sampled_from(
    [
        5,
        None,
        [],
        {"type": "odd.kind", "index": 0, "output_index": 0, "delta": {"x": 1}},
        {"type": "ping"},
        {"choices": [None, 5, {"index": 7, "delta": {"content": "other choice"}}]},
        {"choices": [{"index": 0, "delta": {"x": {"content": 5}, "content": 5}}]},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "odd_delta", "text": 5, "partial_json": None}},
        {"type": "content_block_delta", "index": 99, "delta": {"type": "input_json_delta", "partial_json": "}"}},
        {"type": "content_block_stop", "index": 99},
        {"type": "response.output_text.delta", "delta": 5, "output_index": "x"},
        {"type": "response.function_call_arguments.delta", "delta": "}", "output_index": 99, "item_id": "none"},
        {"type": "response.output_item.added", "output_index": 98, "item": None},
        {"type": ["response.completed"], "response": 5},
    ]
)
raw_noise = st.sampled_from(
    [
        b": keep-alive\n\n",
        b":\n",
        b"\n\n",
        b"id: 7\n",
        b"retry: 10\n",
        b"x-unknown: field\n",
        b"data: this is no JSON\n\n",
        b'data: {"broken": \n\n',
        b"data:\n\n",
        b"event: ping\n\n",
        b"event: odd.kind\ndata: {}\n\n",
        b"data: \xff\xfe\n\n",
        b"data: " + b"[" * 3000 + b"\n\n",
    ]
)
noise = json_noise.map(lambda payload: b"data: " + json.dumps(payload).encode() + b"\n\n") | raw_noise


@st.composite
def over_several_lines(draw: st.DrawFn, payload: Any) -> bytes:
    """One event whose JSON is written over several `data:` lines."""
    text = json.dumps(payload, ensure_ascii=False, indent=draw(st.sampled_from([None, 1])))
    named = f"event: {payload['type']}\n" if isinstance(payload.get("type"), str) else ""
    return (named + "".join(f"data: {line}\n" for line in text.split("\n")) + "\n").encode()


@st.composite
def streams(draw: st.DrawFn, dialect: Dialect, answer: Answer) -> bytes:
    """The answer as a stream, with what endpoints and gateways put between, in any form of line ends."""
    data = b""
    for payload in dialect.payloads(answer):
        if draw(st.integers(0, 3)) == 0:
            data += draw(noise)
        if isinstance(payload, str):
            data += frame(payload)
            continue
        more = {**payload, **draw(st.sampled_from([{}, {"x_unknown": {"choices": [], "type": "x"}}]))}
        data += frame(more) if draw(st.integers(0, 3)) > 0 else draw(over_several_lines(more))
    return data.replace(b"\n", draw(st.sampled_from([b"\n", b"\r\n", b"\r"])))


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """The data in pieces, cut at these places."""
    marks = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return [data[a:b] for a, b in pairwise(marks)]


cuts = st.lists(st.integers(0, 20_000), max_size=25)
