"""The index of conversations: continued, branched, retried, ambiguous; and never across tenants."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.calls import ToolCall
from agentspec.proxy.trajectories import Placement, Relayed, TrajectoryIndex
from agentspec.wire.chat import read_message
from agentspec.wire.request import TurnRequest

USER = {"role": "user", "content": "hello"}


def calling(*ids: str, arguments: str = '{"a": 1}') -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": arguments}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(of: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": of, "content": "r"}


class Told:
    """An index that is asked and told what was relayed."""

    def __init__(self) -> None:
        self.index = TrajectoryIndex()

    def ask(self, messages: list[dict[str, Any]], **more: Any) -> Placement:
        said = [one for message in messages for one in read_message(message)]
        request = TurnRequest("chat", "m", said)
        return self.index.place(request, **{"tenant": "t", "session": None, "retry": False, **more})

    def relayed(self, placement: Placement, *ids: str, arguments: Any = None) -> None:
        calls = [ToolCall("f", arguments or {"a": 1}, i) for i in ids]
        placement.turn.answer = Relayed(calls, answered=True)

    def turn(self, messages: list[dict[str, Any]], *ids: str, **more: Any) -> Placement:
        placement = self.ask(messages, **more)
        self.relayed(placement, *ids)
        return placement


@given(ids=st.lists(st.sampled_from(["functions.f:0", "c1", "c2"]), min_size=1, max_size=6))
def test_a_conversation_whose_ids_repeat_stays_one(ids: list[str]) -> None:
    told, messages = Told(), [USER]
    names = set()
    for identity in ids:
        placement = told.turn(messages, identity)
        assert not placement.ambiguous
        names.add(placement.turn.trajectory)
        messages = [*messages, calling(identity), result(identity)]
    assert len(names) == 1


def test_sixteen_agents_on_one_task_with_ids_of_their_own_are_told_apart() -> None:
    told = Told()
    first = [told.turn([USER], f"c{n}") for n in range(16)]
    assert len({placement.turn.trajectory for placement in first}) == 16
    for number in reversed(range(16)):
        placement = told.turn([USER, calling(f"c{number}"), result(f"c{number}")])
        assert placement.parents == (first[number].turn,)
        assert placement.turn.trajectory == first[number].turn.trajectory


def test_agents_whose_ids_are_the_same_are_ambiguous_and_get_a_name_of_their_own() -> None:
    told = Told()
    first = [told.turn([USER], "functions.f:0") for _ in range(2)]
    placement = told.turn([USER, calling("functions.f:0"), result("functions.f:0")])
    assert placement.ambiguous
    assert placement.turn.trajectory not in {one.turn.trajectory for one in first}


def test_a_second_continuation_is_a_branch() -> None:
    told = Told()
    root = told.turn([USER], "c")
    again = [told.turn([USER, calling("c"), result("c"), {"role": "user", "content": str(n)}]) for n in range(3)]
    assert [branch.parents for branch in again] == [(root.turn,)] * 3
    assert len({branch.turn.trajectory for branch in again}) == 3
    assert again[0].turn.trajectory == root.turn.trajectory


def test_a_retry_takes_the_place_of_what_it_repeats() -> None:
    told = Told()
    failed = told.ask([USER])
    again = told.turn([USER], "c", retry=True)
    assert again.dropped == (failed.turn,)
    assert again.turn.trajectory == failed.turn.trajectory
    later = told.turn([USER, calling("c"), result("c")])
    assert later.parents == (again.turn,)
    assert later.turn.trajectory == failed.turn.trajectory


def test_a_retry_of_an_answer_that_was_lost_on_the_way_is_not_ambiguous() -> None:
    told = Told()
    lost = told.turn([USER], "functions.f:0")
    again = told.turn([USER], "functions.f:0", retry=True)
    later = told.turn([USER, calling("functions.f:0"), result("functions.f:0")])
    assert not later.ambiguous
    assert later.turn.trajectory == again.turn.trajectory == lost.turn.trajectory


@pytest.mark.parametrize("more", [{"tenant": "other"}, {"session": "s"}])
def test_other_tenants_and_sessions_continue_nothing(more: dict[str, Any]) -> None:
    told = Told()
    root = told.turn([USER], "c")
    other = told.turn([USER, calling("c"), result("c")], **more)
    assert other.parents == ()
    assert other.turn.trajectory != root.turn.trajectory
    assert told.turn([USER], retry=True, **more).dropped == ()


@pytest.mark.parametrize(
    "answer",
    [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "spoke instead"},
        calling("c", "d"),
        calling("c", arguments='{"a": 2}'),
        calling("x"),
    ],
)
def test_an_answer_that_was_not_relayed_is_no_continuation(answer: dict[str, Any]) -> None:
    told = Told()
    told.turn([USER], "c")
    assert told.turn([USER, answer, result("c")]).parents == ()


def test_no_messages_are_no_crash() -> None:
    assert Told().turn([]).parents == ()


def test_the_index_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentspec.proxy.trajectories.MAX_TURNS", 10)
    told = Told()
    told.turn([USER], "c")
    for number in range(50):
        told.turn([{"role": "user", "content": str(number)}], "c")
    assert told.turn([USER, calling("c"), result("c")]).parents == ()
    newest = [{"role": "user", "content": "49"}]
    assert len(told.turn([*newest, calling("c"), result("c")]).parents) == 1


def test_a_retry_never_takes_the_place_of_another_agents_turn() -> None:
    """Two agents begin with the same words; one of them fails and tries again."""
    told = Told()
    failed, other = told.ask([USER]), told.turn([USER], "c")
    again = told.ask([USER], retry=True)
    assert again.dropped == (failed.turn,)
    assert again.turn.trajectory == failed.turn.trajectory != other.turn.trajectory


def test_a_retry_that_may_be_anybodys_takes_nobodys_place() -> None:
    told = Told()
    running = [told.ask([USER]) for _ in range(2)]
    again = told.ask([USER], retry=True)
    assert again.dropped == ()
    assert again.turn.trajectory not in {one.turn.trajectory for one in running}
