"""The channel's messages come back the same, errors have the API's shape, contradictions are told."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec import channel, errors
from agentspec.effects import EVERYTHING, Effect, ToolSpec, overlap

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
seconds = st.floats(0, 1e9)
objects = st.dictionaries(texts, st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts, max_size=3)
names = st.frozensets(texts, max_size=3)
specs = st.one_of(
    st.builds(ToolSpec, texts, st.just(Effect.PURE), texts, egress=st.booleans(), parameters=objects),
    st.builds(ToolSpec, texts, st.just(Effect.READ), texts, names, stable_for_s=st.floats(0.1, 99)),
    st.builds(ToolSpec, texts, st.sampled_from([Effect.WRITE, Effect.IRREVERSIBLE]), texts, names, names),
)
infos = st.builds(channel.ToolInfo.of, specs, st.booleans())
from_runtime = st.one_of(
    st.builds(channel.Hello, texts, st.lists(infos, max_size=3)),
    st.builds(channel.Ran, texts, seconds, st.none() | texts),
    st.builds(channel.Refused, texts, texts),
    st.builds(channel.Ask, st.integers(0, 2**40), texts),
    st.builds(
        channel.Claimed, st.integers(0, 9), texts, st.none() | texts, texts, st.none() | texts, seconds, seconds, texts
    ),
    st.builds(channel.Voided, st.lists(texts, max_size=3), texts, texts),
)
from_proxy = st.one_of(
    st.builds(channel.Welcome, texts),
    st.builds(channel.RunAhead, texts, texts, texts, objects, seconds),
    st.builds(channel.Cancel, texts, texts),
    st.builds(channel.Grant, st.integers(0, 9), st.booleans(), texts),
    st.builds(channel.Session, st.integers(0, 9), texts),
)


@given(message=from_runtime)
def test_what_a_runtime_says_arrives(message: Any) -> None:
    frame = channel.encode(message)
    assert channel.decode_from_runtime(frame) == channel.decode_from_runtime(frame.encode()) == message
    with pytest.raises(msgspec.DecodeError):
        channel.decode_from_proxy(frame)


@given(message=from_proxy)
def test_what_the_proxy_says_arrives(message: Any) -> None:
    frame = channel.encode(message)
    assert channel.decode_from_proxy(frame) == message
    with pytest.raises(msgspec.DecodeError):
        channel.decode_from_runtime(frame)


@given(spec=specs, loose=st.booleans())
def test_a_declaration_survives_the_channel(spec: ToolSpec, loose: bool) -> None:
    info = channel.ToolInfo.of(spec, loose)
    assert msgspec.json.decode(msgspec.json.encode(info), type=channel.ToolInfo).spec() == spec


@pytest.mark.parametrize(
    "frame", ["", "{", "[]", "{}", '{"type":"nope"}', '{"type":"ran"}', '{"type":"ask","ask":"x","bet":"b"}']
)
def test_what_is_no_message_is_a_decode_error(frame: str) -> None:
    for decode in (channel.decode_from_runtime, channel.decode_from_proxy):
        with pytest.raises(msgspec.DecodeError):
            decode(frame)


def test_a_newer_version_may_add_fields() -> None:
    assert channel.decode_from_runtime('{"type":"ran","bet":"b","latency_s":1,"new":[1]}') == channel.Ran("b", 1.0)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (errors.RequestError("no"), 400, "invalid_request_error", "invalid_request"),
        (errors.RequestError("no", code="x", status=413), 413, "invalid_request_error", "x"),
        (errors.UpstreamError("no"), 502, "api_error", "upstream_unreachable"),
        (errors.UpstreamError("no", code="upstream_timeout", status=504), 504, "api_error", "upstream_timeout"),
    ],
)
def test_errors_that_an_agent_sees_have_the_apis_shape(
    error: errors.ApiError, status: int, kind: str, code: str
) -> None:
    assert error.status == status
    assert json.loads(json.dumps(error.body())) == {
        "error": {"message": "no", "type": kind, "param": None, "code": code}
    }


def test_every_error_of_ours_has_one_root_and_bets_are_never_shown() -> None:
    tree = [errors.ConfigError, errors.RequestError, errors.UpstreamError, errors.SpeculationError, errors.ToolRefused]
    assert all(issubclass(kind, errors.AgentspecError) for kind in tree)
    assert not issubclass(errors.SpeculationError, errors.ApiError)


@given(one=names, other=names)
def test_domains_overlap_both_ways_and_everything_with_all(one: frozenset[str], other: frozenset[str]) -> None:
    assert overlap(one, other) == overlap(other, one)
    assert overlap(one, one) == bool(one)
    assert overlap(one | {EVERYTHING}, other) == bool(other)


@pytest.mark.parametrize(
    "more",
    [
        {"effect": Effect.PURE, "reads": frozenset("a")},
        {"effect": Effect.PURE, "writes": frozenset("a")},
        {"effect": Effect.READ, "stable_for_s": 1.0, "writes": frozenset("a")},
        {"effect": Effect.READ},
        {"effect": Effect.READ, "stable_for_s": 0.0},
        {"effect": Effect.READ, "stable_for_s": -1.0},
        {"effect": Effect.READ, "stable_for_s": float("nan")},
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError, match="tool 'get_order'"):
        ToolSpec("get_order", **more)


def test_what_nobody_named_is_everything() -> None:
    assert ToolSpec("f", Effect.WRITE).touched == {EVERYTHING}
    assert ToolSpec("f", Effect.READ, stable_for_s=1.0).depends_on == {EVERYTHING}
    assert ToolSpec("f", Effect.PURE).depends_on == ToolSpec("f", Effect.PURE).touched == frozenset()
    assert ToolSpec("f", Effect.READ, reads=frozenset("a"), stable_for_s=1.0).touched == frozenset()
