"""A declared tool is called as if agentspec were not there: the same arguments, objects, errors, and hardly later."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.errors import ConfigError
from tests.contract.scripted import Gate, asks_for
from tests.contract.support import BOTH_WAYS, Guesses

pytestmark = BOTH_WAYS

SERVED = ("hit", "joined")
READ = {"effect": "read", "stable_for": 30.0}


def of_iterable(numbers: Iterable[int]) -> int:
    return sum(numbers)


def of_iterator(numbers: Iterator[int]) -> int:
    return sum(numbers)


def of_generator(numbers: Generator[int, None, None]) -> int:
    return sum(numbers)


def of_list(numbers: list[int]) -> int:
    return sum(numbers)


def of_set(numbers: set[int]) -> int:
    return sum(numbers)


def of_anything(numbers: Any) -> int:
    return sum(numbers)


def of_untold(numbers):
    return sum(numbers)


def of_extra(**more: Any) -> int:
    return sum(more["numbers"])


@dataclass
class Box:
    content: Any


def of_nested(numbers: dict[str, list[Box]]) -> int:
    return sum(numbers["inside"][0].content)


USED_UP = {
    "generator": lambda: (n for n in (1, 2, 3)),
    "iterator": lambda: iter([1, 2, 3]),
    "map": lambda: map(int, "123"),
    "dict values": {"a": 1, "b": 2, "c": 3}.values,
}


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize(
    "function", [of_iterable, of_iterator, of_generator, of_list, of_set, of_anything, of_untold, of_extra, of_nested]
)
def test_an_argument_that_can_be_read_once_is_left_to_the_tool(start, join, function, effect):
    stable = {"stable_for": 1.0} if effect == "read" else {}
    try:
        tool = speculate(effect=effect, **stable)(function)
    except ConfigError:
        return  # refused at declaration: nothing can go wrong later
    join(start(), tool)
    results = {}
    for kind, made in USED_UP.items():
        numbers = made()
        results[kind] = tool(numbers={"inside": [Box(numbers)]} if function is of_nested else numbers)
    assert results == dict.fromkeys(USED_UP, 6)


def test_a_file_is_left_where_it_stands(start, join):
    @speculate(**READ)
    def read(file: Any) -> str:
        return file.read()

    join(start(), read)
    assert read(io.StringIO("text")) == "text"


def test_the_tool_gets_the_very_objects_that_the_agent_passes(start, join):
    seen: list[Any] = []

    @speculate(**READ)
    def look(items: list[int], more: dict[str, Any], amount: float, extra: Any = None) -> str:
        seen.extend([items, more, amount, extra])
        return "ok"

    join(start(), look)
    items, more, extra = [1], {"a": [1]}, object()
    assert look(items, more, 1, extra) == "ok"
    assert (seen[0] is items, seen[1] is more, type(seen[2]), seen[3] is extra) == (True, True, int, True)


def test_a_call_that_would_fail_validation_runs_as_python_runs_it(start, join):
    @speculate(**READ)
    def double(number: int) -> Any:
        return number * 2

    join(start(), double)
    assert double("ab") == "abab"
    assert double([1]) == [1, 1]
    with pytest.raises(TypeError):
        double(None)


def test_a_plain_call_costs_next_to_nothing(start, join):
    @speculate(**READ)
    def quick(key: str) -> str:
        return key

    join(start(), quick)
    quick("warm")
    began = time.monotonic()
    for number in range(300):
        quick(str(number))
    assert time.monotonic() - began < 1.5


def test_a_tool_of_two_runtimes_in_one_process_is_served_by_the_one_that_was_asked(endpoint, start, join, agent_of):
    """As a notebook's cell that connects, run twice."""
    runs: list[Gate] = [Gate() for _ in range(9)]
    count: list[str] = []

    @speculate(**READ)
    def get(key: str) -> str:
        runs[len(count)].open()
        count.append(key)
        return f"{key}{len(count)}"

    proxy = start(Guesses(lambda turn: [ToolCall("get", {"key": json.loads(turn.body)["messages"][0]["content"]})]))
    runtimes = [join(proxy, get) for _ in range(3)]
    for number, runtime in enumerate(runtimes):
        endpoint.script = lambda exchange, _, n=number: asks_for("get", {"key": f"k{n}"}, after=runs[n])
        assert agent_of(runtime, get, question=f"k{number}").turn() == [f"k{number}{number + 1}"]
    assert [claim["outcome"] in SERVED for claim in proxy.claimed(3)] == [True] * 3
