"""Whatever bytes an endpoint or a client sends: readers say what they understood, and never raise anything else."""

from __future__ import annotations

import contextlib
import json
import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentspec.errors import RequestError
from tests.wire.dialects import Dialect
from tests.wire.mutations import HISTORY, altered
from tests.wire.streams import answers, cut, cuts, streams, values

slow_is_fine = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


@given(data=st.binary(max_size=300), at=cuts)
@slow_is_fine
def test_no_bytes_make_a_reader_raise(dialect: Dialect, data: bytes, at: list[int]) -> None:
    stream = dialect.api.open_stream()
    for piece in cut(data, at):
        stream.feed(piece)
        assert stream.held_bytes <= len(data)
    stream.finish()
    dialect.api.read_answer(data)


@given(data=st.data())
@slow_is_fine
def test_no_damage_to_a_stream_makes_a_reader_raise(dialect: Dialect, data: st.DataObject) -> None:
    raw = bytearray(data.draw(streams(dialect, data.draw(answers(dialect)))))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, max(len(raw) - 1, 0)))
        raw[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=4))
    stream = dialect.api.open_stream()
    stream.feed(bytes(raw))
    stream.finish()
    dialect.api.read_answer(bytes(raw))


@given(data=st.data(), seed=st.integers(0, 2**32))
@slow_is_fine
def test_no_json_makes_a_reader_raise(dialect: Dialect, data: st.DataObject, seed: int) -> None:
    chance = random.Random(seed)
    answer = data.draw(answers(dialect))
    for _ in range(5):
        stream = dialect.api.open_stream()
        for payload in dialect.payloads(answer):
            odd = altered(payload, chance) if isinstance(payload, dict) and chance.random() < 0.4 else payload
            kind = payload.get("type", "message") if isinstance(payload, dict) else "message"
            stream.feed(f"event: {kind}\ndata: {json.dumps(odd)}\n\n".encode())
        stream.finish()
        dialect.api.read_answer(json.dumps(altered(dialect.body(answer), chance)).encode())


@given(data=st.binary(max_size=300) | values.map(lambda value: json.dumps(value).encode()))
@slow_is_fine
def test_a_request_is_read_or_refused_in_one_of_two_ways(dialect: Dialect, data: bytes) -> None:
    with contextlib.suppress(RequestError, msgspec.ValidationError):
        dialect.api.read_request(data)


@given(seed=st.integers(0, 2**32))
@slow_is_fine
def test_a_request_with_something_odd_in_it_is_read_or_refused(dialect: Dialect, seed: int) -> None:
    chance = random.Random(seed)
    odd = altered(altered(HISTORY, chance), chance)
    body = json.dumps(altered(odd, chance) if isinstance(odd, dict) else odd).encode()
    with contextlib.suppress(RequestError, msgspec.ValidationError):
        dialect.api.read_request(body)


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize("bracket", ["[", '{"a":', "[{"])
def test_json_nested_absurdly_deep_is_no_crash(dialect: Dialect, depth: int, bracket: str) -> None:
    deep = (bracket * depth).encode()
    closed = {"[": b"]", '{"a":': b"1}", "[{": b"}]"}[bracket] * depth
    for text in (deep, deep + closed):
        stream = dialect.api.open_stream()
        stream.feed(b"data: " + text + b'\n\ndata: {"type": "response.completed", "response": ' + text + b"}\n\n")
        stream.finish()
        dialect.api.read_answer(text)
        body = b'{"model":"m","messages":[{"role":"user","content":' + text + b'}],"input":' + text + b"}"
        with contextlib.suppress(RequestError, msgspec.ValidationError, RecursionError):
            dialect.api.read_request(body)
