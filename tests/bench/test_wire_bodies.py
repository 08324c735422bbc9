"""Bodies have the sizes that their names say, are what agents send, and are never the same twice."""

from __future__ import annotations

import json
from itertools import islice, pairwise

import pytest

from agentspec.proxy.bench.wire_bodies import TOOL_NAMES, TURNS, Size, bodies


@pytest.mark.parametrize(
    ("size", "least", "most", "tools"), [(Size.SMALL, 900, 1100, 1), (Size.LARGE, 98_000, 102_000, 30)]
)
def test_a_body_has_the_size_that_its_name_says(size: Size, least: int, most: int, tools: int) -> None:
    for streamed in (False, True):
        body = next(bodies(size, streamed=streamed))
        request = json.loads(body)
        assert least <= len(body) <= most
        assert len(request["tools"]) == tools
        assert request.get("stream", False) is streamed


@pytest.mark.parametrize("size", list(Size))
def test_no_two_bodies_are_alike(size: Size) -> None:
    several = [*islice(bodies(size, streamed=False), 20), *islice(bodies(size, streamed=False), 20)]
    assert len(set(several)) == 40


def test_the_large_history_is_an_agents_with_every_call_answered() -> None:
    request = json.loads(next(bodies(Size.LARGE, streamed=False)))
    messages = request["messages"]
    made = [call for message in messages for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert len(messages) == 40
    assert messages[-1]["role"] == "user"
    assert [call["id"] for call in made] == answered
    assert {call["function"]["name"] for call in made} <= set(TOOL_NAMES)


def test_a_growing_history_repeats_what_was_said_and_goes_on() -> None:
    requests = [json.loads(body)["messages"] for body in islice(bodies(Size.GROWING, streamed=False), TURNS + 1)]
    for before, after in pairwise(requests[:TURNS]):
        assert after[: len(before)] == before
        assert [message["role"] for message in after[len(before) :]] == ["assistant", "user"]
    assert len(requests[TURNS]) == len(requests[0])
    assert requests[TURNS] != requests[0]
