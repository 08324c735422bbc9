"""When two results are the same, and in words where they are not."""

from __future__ import annotations

import datetime as dt
import enum
import logging
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentspec.tools_sandbox import fidelity
from agentspec.tools_sandbox.fidelity import Ended, Fidelity, difference


@dataclass
class Point:
    x: Any
    y: Any = 0


@dataclass(eq=False)
class Odd:
    """A data class that compares by identity."""

    x: Any
    inner: list[Any] = field(default_factory=list)


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Model(BaseModel):
    x: int


class Refusal(Exception):
    def __init__(self, code: int, detail: str) -> None:
        super().__init__(code)
        self.detail = detail


class Hostile:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare me")

    __hash__ = None  # type: ignore[assignment]


leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats() | st.binary(max_size=4)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.builds(Point, inner, inner)
        | st.builds(Odd, inner)
    ),
    max_leaves=8,
)


def copied(value: Any) -> Any:
    """The same value, made of other objects."""
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item) for item in value)
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, Point):
        return Point(copied(value.x), copied(value.y))
    if isinstance(value, Odd):
        return Odd(copied(value.x), copied(value.inner))
    if isinstance(value, float):
        return float.fromhex(value.hex())
    return value


@given(value=values)
def test_a_value_does_not_differ_from_its_like(value: Any) -> None:
    assert difference(value, value) is None
    assert difference(value, copied(value)) is None


@given(one=values, other=values)
def test_both_sides_find_a_difference_or_neither(one: Any, other: Any) -> None:
    assert (difference(one, other) is None) == (difference(other, one) is None)


@given(one=values, other=values)
def test_what_is_equal_differs_only_by_type_and_what_is_not_equal_differs(one: Any, other: Any) -> None:
    if difference(one, other) is None:
        assert type(one) is type(other)
        assert repr(one) == repr(other) or one == other


@given(value=values, other=st.sampled_from([object(), "no such thing", 1.5, 10**30]))
def test_one_changed_item_deep_inside_is_found_and_named(value: Any, other: Any) -> None:
    found = difference({"a": [copied(value), 7]}, {"a": [copied(value), other]})
    assert found is not None
    assert found.startswith("result['a'][1]: 7 ahead, ")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, None),
        ("1", 1),
        ([1], (1,)),
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": 1, "b": None}),
        ([1, 2], [2, 1]),
        ([1], [1, 1]),
        (b"x", bytearray(b"x")),
        ({1}, frozenset({1})),
        ({1, 2}, {1, 3}),
        (Decimal("1.0"), 1),
        (Point(1), Point(True)),
        (Point(1, [1]), Point(1, [1.0])),
        (Point(1), Point(2)),
        (Odd(1), Odd(2)),
        (Odd(1, [1]), Odd(1, [2])),
        (Plain(1), Plain(2)),
        (Color.RED, Color.BLUE),
        (Model(x=1), Model(x=2)),
        (dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        (float("nan"), 0.0),
        (ValueError("a"), ValueError("b")),
        (ValueError("a"), TypeError("a")),
        (ValueError(1), ValueError(1.0)),
        (Refusal(1, "x"), Refusal(1, "y")),
        (ValueError("a"), None),
        (Hostile(), Hostile()),
        (object(), object()),
    ],
    ids=lambda value: "object" if type(value) is object else repr(value)[:30],
)
def test_these_differ(one: Any, other: Any) -> None:
    assert difference(one, other) is not None
    assert difference(other, one) is not None
    assert difference([one], [other]) is not None
    assert difference({"k": one}, {"k": other}) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (float("nan"), float("nan")),
        ({"a": [float("nan")]}, {"a": [float("nan")]}),
        (Point(float("nan")), Point(float("nan"))),
        (Odd(1, [2]), Odd(1, [2])),
        (Plain([1]), Plain([1])),
        ({1, 2}, {2, 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Model(x=1), Model(x=1)),
        (Refusal(1, "x"), Refusal(1, "x")),
        (Color.RED, Color.RED),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_these_do_not(one: Any, other: Any) -> None:
    assert difference(one, other) is None


def test_a_difference_is_one_short_line() -> None:
    found = difference({"text": "x" * 10_000}, {"text": "y" * 10_000})
    assert found is not None
    assert len(found) < 250
    assert "\n" not in (difference(["a\nb"], ["c"]) or "")


# Proving


def judge(same_result: Any = None, needed: bool = True) -> Fidelity:
    return Fidelity("look_up", "T1", same_result, needed=needed)


def test_nothing_is_proven_before_the_third_equal_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fidelity, "RECHECKED_SHARE", 0.0)
    judged = judge()
    for _ in range(fidelity.CHECKS):
        assert (judged.proven, judged.wants_a_check()) == (False, True)
        assert judged.compare(Ended(1), Ended(1)) is None
    assert (judged.proven, judged.wants_a_check(), judged.barred) == (True, False, None)


@given(equal=st.integers(0, 10))
def test_one_difference_bars_for_ever_whatever_was_equal_before_or_after(equal: int) -> None:
    judged = judge()
    for _ in range(equal):
        judged.compare(Ended(1), Ended(1))
    first = judged.compare(Ended(1), Ended(2))
    for _ in range(5):
        judged.compare(Ended(1), Ended(1))
    judged.compare(Ended("a"), Ended("b"))
    assert judged.barred == first == "result: 1 ahead, 2 really"
    assert (judged.proven, judged.wants_a_check()) == (False, False)


def test_what_bars_a_tool_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    judged = judge()
    with caplog.at_level(logging.WARNING, "agentspec.fidelity"):
        for _ in range(3):
            judged.compare(Ended(1), Ended(2))
    assert [record.getMessage() for record in caplog.records] == [
        "look_up is barred from T1: result: 1 ahead, 2 really"
    ]


def test_a_change_beside_the_result_bars_as_well() -> None:
    judged = judge()
    assert judged.compare(Ended(1), Ended(1), besides="log changed ahead only") == "log changed ahead only"
    assert judged.barred == "log changed ahead only"


def test_a_tool_in_the_agents_own_process_has_nothing_to_prove() -> None:
    judged = judge(needed=False)
    assert (judged.proven, judged.wants_a_check()) == (True, False)


@pytest.mark.parametrize(
    ("ahead", "real"),
    [
        (Ended(1), Ended(error=ValueError("x"))),
        (Ended(error=ValueError("x")), Ended(1)),
        (Ended(error=ValueError("x")), Ended(error=ValueError("y"))),
        (Ended(error=KeyError("x")), Ended(error=ValueError("x"))),
    ],
)
def test_the_owners_comparison_is_not_asked_about_errors(ahead: Ended, real: Ended) -> None:
    found = judge(same_result=lambda one, other: True).compare(ahead, real)
    assert found is not None
    assert found.startswith("exception")


def test_the_owners_comparison_has_the_last_word_on_results() -> None:
    assert judge(same_result=lambda one, other: True).compare(Ended(1), Ended("two")) is None
    assert judge(same_result=lambda one, other: 0).compare(Ended(1), Ended(1)) is not None


def test_a_share_of_what_is_served_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fidelity, "CHECKS", 0)
    monkeypatch.setattr(fidelity, "RECHECKED_SHARE", 1.0)
    assert judge().proven
    assert judge().wants_a_check()
