"""A write that has run ahead happens only in the state that it ran in: any other write makes its bet stale."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.tools_sandbox.capabilities import missing_tiers
from tests.contract import importable as tools
from tests.contract.scripted import asks_for, call, calls_end, say
from tests.contract.support import undeclared
from tests.contract.workspaces import lines, nothing_is_kept, over

pytestmark = [
    pytest.mark.skipif("T2" in missing_tiers(), reason=f"T2: {missing_tiers().get('T2')}"),
    pytest.mark.usefixtures("state"),
]


def test_a_second_call_of_the_same_tool_in_the_turn_makes_the_bet_stale(scene, state):
    """The agent may make them in any order; the second one's result is not that of a first."""
    made = scene(over(tools.add_line))
    made.guesses = [ToolCall("add_line", {"text": "B"})]
    both = [chunk for i, text in enumerate("AB") for chunk in call("add_line", {"text": text}, f"c{i}", i)]
    agent, calls = made.think(say("x"), made.over(), *both, *calls_end())
    assert [result["key"] for result in agent.act(calls)] == [1, 2]
    assert lines() == ["A", "B"]
    assert made.outcomes == ["stale"]
    nothing_is_kept(state)


@pytest.mark.parametrize("first", [True, False])
def test_an_undeclared_call_in_the_turn_makes_the_bet_stale(scene, state, first):
    made = scene(over(tools.add_line))
    agent = made.new_agent()
    undeclared(agent, "cancel", lambda order_id: Path("log").write_text("cancelled\n"))
    made.guesses = [ToolCall("add_line", {"text": "A"})]
    wanted = [("cancel", {"order_id": "1"}), ("add_line", {"text": "A"})]
    both = enumerate(wanted if first else reversed(wanted))
    asked = [chunk for i, (name, given) in both for chunk in call(name, given, f"c{i}", i)]
    agent, calls = made.think(say("x"), made.over(), *asked, *calls_end(), agent=agent)
    agent.act(sorted(calls, key=lambda made: made.name == "add_line"))
    assert lines() == ["cancelled", "A"]
    assert made.outcomes == ["stale"]


@pytest.mark.parametrize("name", ["cancel", "add_line"])
def test_a_write_of_another_conversation_makes_the_bet_stale(scene, state, name):
    made = scene(over(tools.add_line))
    agent, calls = made.asked("add_line", text="A")
    other = made.new_agent()
    undeclared(other, "cancel", lambda order_id: None)
    given = {"order_id": "1"} if name == "cancel" else {"text": "B"}
    made.guesses = []
    made.think(*asks_for(name, given), agent=other)
    agent.act(calls)
    assert lines() == ["A"]
    assert made.outcomes == ["stale"]
    nothing_is_kept(state)


def test_a_write_goes_ahead_in_the_next_turn_of_the_conversation(scene, state):
    """Its own window has closed by then."""
    made = scene(over(tools.add_line))
    agent, calls = made.asked("add_line", text="A")
    agent.act(calls)
    made.guesses = [ToolCall("add_line", {"text": "B"})]
    agent, calls = made.think(*asks_for("add_line", {"text": "B"}, after=made.over(), id="c2"), agent=agent)
    assert agent.act(calls)[0]["key"] == 2
    assert lines() == ["A", "B"]
    assert made.outcomes == ["hit", "hit"]


def test_two_equal_bets_of_two_conversations_each_happen_once(scene, state):
    made = scene(over(tools.add_line))
    first, calls = made.asked("add_line", text="A")
    second, more = made.asked("add_line", text="A")
    results = [*first.act(calls), *second.act(more)]
    assert [result["key"] for result in results] == [1, 2]
    assert lines() == ["A", "A"]
    nothing_is_kept(state)


def test_the_same_call_twice_in_a_turn_happens_twice(scene, state):
    made = scene(over(tools.add_line))
    made.guesses = [ToolCall("add_line", {"text": "A"})] * 2
    both = [chunk for i in range(2) for chunk in call("add_line", {"text": "A"}, f"c{i}", i)]
    agent, calls = made.think(say("x"), made.over(), *both, *calls_end())
    assert [result["key"] for result in agent.act(calls)] == [1, 2]
    assert lines() == ["A", "A"]
    nothing_is_kept(state)


def test_a_change_of_the_workspace_behind_our_back_makes_the_bet_stale(scene, state):
    made = scene(over(tools.add_line))
    agent, calls = made.asked("add_line", text="A")
    Path("unrelated").write_text("somebody was here")
    assert agent.act(calls)[0]["pid"] == os.getpid()
    assert lines() == ["A"]
    assert made.outcomes == ["stale"]
    nothing_is_kept(state)


def test_a_commit_is_a_write_for_every_other_read(scene):
    """A read of the same process that waits for its claim behind another proxy, which saw no write go by."""
    made = scene(over(tools.add_line, reads={"files"}, writes={"files"}))
    seen: list[int] = []

    @speculate(effect="read", reads={"files"}, stable_for=30.0)
    def count() -> int:
        seen.append(len(lines()))
        return len(lines())

    other = scene(count)
    reader, reads = other.asked("count")
    agent, calls = made.asked("add_line", text="A")
    assert agent.act(calls)[0]["pid"] != os.getpid()
    assert reader.act(reads) == [1]
    assert other.outcomes == ["stale"]
    assert seen == [0, 1]


def test_while_a_real_write_goes_on_nothing_is_committed(scene, state):
    may_end, began = threading.Event(), threading.Event()

    @speculate(effect="write", writes={"files"})
    def hold(order_id: str) -> None:
        began.set()
        may_end.wait(5)

    made = scene(over(tools.add_line, reads={"files"}, writes={"files"}), hold)
    agent, calls = made.asked("add_line", text="A")
    writer = threading.Thread(target=hold, args=("1",))
    writer.start()
    began.wait(5)
    assert agent.act(calls)[0]["pid"] == os.getpid()
    assert made.outcomes == ["stale"]
    may_end.set()
    writer.join()
    assert lines() == ["A"]
