"""Conformance: a tool's result reaches the caller exactly as a plain call's would, or the run ends in an error."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import process_attacks, shapes, tools, traps
from tests.sandbox.support import EVERYWHERE, ISOLATED


def same(one: Any, other: Any) -> bool:
    """Equal, with the same types all the way down; NaN equals NaN, and -0.0 does not equal 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            same(*keys) and same(one[keys[0]], other[keys[1]]) for keys in zip(one, other, strict=True)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    return one == other or repr(one) == repr(other)


@EVERYWHERE
@pytest.mark.parametrize("name", shapes.JSON_RESULTS)
def test_a_json_result_comes_back_exactly(place: Any, name: str) -> None:
    assert same(place.run(tools.json_result, name=name).value(), shapes.JSON_RESULTS[name])


@EVERYWHERE
@pytest.mark.parametrize("name", shapes.PYTHON_RESULTS)
def test_a_python_result_comes_back_with_its_types(place: Any, name: str) -> None:
    assert same(place.run(tools.python_result, name=name).value(), shapes.PYTHON_RESULTS[name])


@EVERYWHERE
@pytest.mark.parametrize("name", shapes.UNUSUAL_RESULTS)
def test_an_unusual_result_comes_back_exactly_or_not_at_all(place: Any, name: str) -> None:
    outcome, expected = place.run(tools.unusual_result, name=name), shapes.UNUSUAL_RESULTS[name]
    if outcome.error is None:
        assert outcome.result is expected or (
            type(outcome.result) is type(expected) and repr(outcome.result) == repr(expected)
        )


@EVERYWHERE
def test_a_result_of_20_megabytes_comes_back(place: Any) -> None:
    result = place.run(tools.megabytes, count=20).value()
    assert hashlib.sha256(result).digest() == hashlib.sha256(tools.megabytes(20)).digest()


@EVERYWHERE
def test_a_result_of_many_objects_comes_back(place: Any) -> None:
    assert place.run(tools.lines, count=50_000).value() == tools.lines(50_000)


@EVERYWHERE
def test_a_tool_without_a_result_gives_none(place: Any) -> None:
    outcome = place.run(tools.nothing)
    assert (outcome.result, outcome.error) == (None, None)


@ISOLATED
@pytest.mark.parametrize("depth", [100, 100_000])
def test_a_deeply_nested_result_comes_back_or_is_refused_and_harms_nobody(place: Any, depth: int) -> None:
    outcome = place.run(tools.nest, depth=depth)
    assert depth > 100 or same(outcome.value(), tools.nest(depth))
    assert place.run(tools.echo, value="still here").value() == "still here"


@EVERYWHERE
@pytest.mark.parametrize(
    "value", ["", "\u0000", "a\nb", 2**60, 1e300, [], {"": None}, [[1, "2"], {"x": [True]}], "y" * 3_000_000]
)
def test_an_argument_arrives_exactly(place: Any, value: Any) -> None:
    assert same(place.run(tools.echo, value=value).value(), value)


@EVERYWHERE
@pytest.mark.parametrize("value", ["\ud83d", 2**80, 10**5000], ids=["half a pair", "81 bits", "5001 digits"])
def test_an_argument_that_json_cannot_always_carry_arrives_exactly_or_not_at_all(place: Any, value: Any) -> None:
    outcome = place.run(tools.echo, value=value)
    assert outcome.error is not None or same(outcome.result, value)


@EVERYWHERE
def test_defaults_are_the_functions_own(place: Any) -> None:
    assert place.run(tools.greet, name="Ann").value() == "hello Ann"
    assert place.run(tools.greet, name="Ann", greeting="bye", loud=True).value() == "bye Ann!"


@EVERYWHERE
def test_typed_arguments_arrive_as_their_types(place: Any) -> None:
    order = {"id": 1, "placed": "2026-01-02T03:04:05Z", "price": "1.50", "lines": [{"name": "pen"}]}
    seen = place.run(tools.typed, colour="red", when="2026-01-02T03:04:05Z", item={"name": "pen"}, order=order).value()
    assert seen == [repr(shapes.Colour.RED), "2026-01-02T03:04:05+00:00", repr(shapes.Item("pen")), "Order"]


@EVERYWHERE
def test_an_async_tool_gives_its_result(place: Any) -> None:
    assert place.run(tools.greet_soon, name="Ann").value() == "hello Ann"


@EVERYWHERE
def test_an_async_tool_may_gather_and_use_threads(place: Any) -> None:
    assert place.run(tools.gather, numbers=[1, 2, 3]).value() == [2, 4, 6]


@EVERYWHERE
@pytest.mark.parametrize("kind", ["generator", "async generator", "coroutine"])
def test_a_stream_is_refused(place: Any, kind: str) -> None:
    assert place.run(tools.unreturnable, kind=kind).error is not None


@ISOLATED
@pytest.mark.parametrize(
    "kind", ["lambda", "open file", "lock", "thread", "module", "object of a local class", "deep inside"]
)
def test_what_lives_only_where_it_was_made_is_refused(place: Any, kind: str) -> None:
    outcome = place.run(tools.unreturnable, kind=kind)
    assert isinstance(outcome.error, Exception)
    assert str(outcome.error)


@ISOLATED
@pytest.mark.parametrize("kind", traps.TRAPS)
@pytest.mark.parametrize("tool", [traps.lay, traps.throw], ids=["returned", "raised"])
def test_a_result_that_would_run_code_ends_as_an_error_and_runs_nothing(
    place: Any, tool: Any, kind: str, tmp_path: Path
) -> None:
    marker = tmp_path / "sprung"
    outcome = place.run(tool, kind=kind, path=str(marker))
    assert outcome.error is not None or isinstance(outcome.result, traps.Sprung)  # rebuilt, past its own `__reduce__`
    if kind == "Popen":
        time.sleep(0.1)  # nothing tells when a program would have been through
    assert not marker.exists()


@ISOLATED
def test_restoring_a_results_state_runs_nothing_outside(place: Any, tmp_path: Path) -> None:
    marker = tmp_path / "sprung"
    place.run(traps.unpacked, path=str(marker))
    assert not marker.exists()


@ISOLATED
@pytest.mark.parametrize("how", ["code", "endless length", "zeros", "half a message", "a flood", "a trickle"])
def test_an_answer_forged_on_the_wire_is_an_error_and_runs_nothing(place: Any, how: str, tmp_path: Path) -> None:
    marker = tmp_path / "sprung"
    started = place.start(process_attacks.forge, how=how, marker=str(marker), timeout_s=1.0)
    outcome = started.wait(4.0)
    started.cancel()
    assert outcome.error is not None
    assert not isinstance(outcome.error, TimeoutError), "it never ended"
    assert not marker.exists()
    assert place.run(tools.echo, value="still here").value() == "still here"


@ISOLATED
def test_a_forked_child_cannot_answer_for_its_parent(place: Any) -> None:
    outcome = place.run(process_attacks.return_twice, subprocesses=True)
    assert outcome.error is not None or outcome.result == "parent"


@EVERYWHERE
def test_runs_at_the_same_time_keep_their_results_apart(place: Any) -> None:
    started = {number: place.start(tools.echo, value=number) for number in range(4)}
    assert {number: run.wait(10.0).value() for number, run in started.items()} == {n: n for n in started}
    for run in started.values():
        run.cancel()


def test_the_comparison_itself_is_strict() -> None:
    assert same([1, (2,)], [1, (2,)]) and same(math.nan, math.nan)
    assert not any(map(same, [(1,), 1, 0.0, True], [[1], 1.0, -0.0, 1]))
