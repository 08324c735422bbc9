"""Tools that write run ahead over a copy of their workspace: what they change appears with their claim, or never."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agentspec.calls import ToolCall
from agentspec.tools_sandbox import fidelity
from agentspec.tools_sandbox.capabilities import missing_tiers
from agentspec.tools_sandbox.declare import declared
from tests.contract import importable as tools
from tests.contract.sandboxed import When, proven
from tests.contract.scripted import asks_for, say
from tests.contract.workspaces import lines, nothing_is_kept, over

pytestmark = [
    pytest.mark.skipif("T2" in missing_tiers(), reason=f"T2: {missing_tiers().get('T2')}"),
    pytest.mark.usefixtures("state"),
]


def test_a_write_appears_once_with_its_claim_and_not_before(scene, state):
    made = scene(over(tools.add_line))
    agent, calls = made.asked("add_line", text="A")
    assert made.placed[0].open
    assert lines() == [], "it has run, but nobody has made the call yet"
    (result,) = agent.act(calls)
    assert result["key"] == 1
    assert result["pid"] != os.getpid()
    assert lines() == ["A"]
    assert made.outcomes == ["hit"]
    assert made.bets()[0]["tier"] == "T2"
    nothing_is_kept(state)


def test_a_write_proves_itself_by_leaving_the_workspace_as_the_real_call_does(scene, state, monkeypatch):
    monkeypatch.setattr(fidelity, "CHECKS", 3)
    made = scene(over(tools.add_line, same_result=tools.same_key))
    assert [made.play("add_line", text=text)["pid"] for text in "ABC"] == [os.getpid()] * 3
    assert lines() == ["A", "B", "C"]
    assert made.play("add_line", text="D")["pid"] != os.getpid()
    assert lines() == ["A", "B", "C", "D"]
    assert made.outcomes == ["miss", "miss", "miss", "hit"]
    nothing_is_kept(state)


def test_a_write_that_leaves_something_else_there_is_barred(scene, state, monkeypatch):
    monkeypatch.setattr(fidelity, "CHECKS", 3)
    made = scene(over(tools.write_own_pid))
    made.play("write_own_pid", name="id")
    assert Path("id").read_text() == str(os.getpid())
    made.play("write_own_pid", name="id")
    assert "barred from T2: id is another than the run left" in made.bets(2)[1]["reason"]
    nothing_is_kept(state)


def test_a_wrong_guess_leaves_nothing(scene, state):
    made = scene(over(tools.add_line))
    made.guesses = [ToolCall("add_line", {"text": "wrong"})]
    agent, calls = made.think(*asks_for("add_line", {"text": "right"}, after=made.over()))
    nothing_is_kept(state)
    agent.act(calls)
    assert lines() == ["right"]
    assert made.outcomes == ["miss"]


def test_a_guess_in_a_turn_without_a_call_leaves_nothing(scene, state):
    made = scene(over(tools.add_line))
    made.guesses = [ToolCall("add_line", {"text": "A"})]
    made.think(say("x"), made.over())
    nothing_is_kept(state)
    assert lines() == []


def test_a_run_that_never_ends_is_killed_and_the_tool_runs_once(scene, state):
    tool = over(tools.add_line_slowly_ahead)
    declared(tool).took(0.01)
    made = scene(tool)
    agent, calls = made.asked("add_line_slowly_ahead", text="A", after=made.started())
    assert agent.act(calls)[0]["pid"] == os.getpid()
    assert lines() == ["A"]
    assert made.outcomes == ["failed"]
    assert made.bets()[0]["reason"] == "the run ahead took too long"
    nothing_is_kept(state)


def test_a_claim_that_is_cancelled_while_it_waits_leaves_nothing(scene, state):
    tool = over(tools.add_line_slowly_soon)
    declared(tool).took(5.0)
    made = scene(tool)
    agent, (asked,) = made.asked("add_line_slowly_soon", text="A", after=made.started())

    async def give_up() -> None:
        task = asyncio.ensure_future(agent.tools[asked.name](**asked.arguments))
        await When(lambda: not made.waiting).passed()  # the claim has taken it out of the table
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    assert made.outcomes == ["unclaimed"]
    nothing_is_kept(state)
    assert lines() == []


def test_an_async_write_is_committed_once(scene, state):
    made = scene(over(tools.add_line_soon))
    agent, (asked,) = made.asked("add_line_soon", text="A")
    assert asyncio.run(agent.tools[asked.name](**asked.arguments))["pid"] != os.getpid()
    assert lines() == ["A"]
    assert made.outcomes == ["hit"]


def test_a_run_that_raises_leaves_nothing_and_the_agent_gets_its_own_error(scene, state):
    made = scene(over(tools.add_line_and_fail))
    agent, calls = made.asked("add_line_and_fail", text="A")
    assert lines() == []
    with pytest.raises(tools.OutOfStock):
        agent.act(calls)
    assert lines() == ["A"]
    assert made.outcomes == ["failed"]
    nothing_is_kept(state)


def test_a_read_over_a_copy_is_served(scene, state):
    Path("log").write_text("1\n2\n")
    made = scene(over(tools.count_lines, "read"))
    assert made.play("count_lines", name="log") == 2
    assert made.outcomes == ["hit"]
    nothing_is_kept(state)


def test_a_read_over_a_copy_proves_itself_and_keeps_no_copies(scene, state, monkeypatch):
    monkeypatch.setattr(fidelity, "CHECKS", 2)
    Path("log").write_text("1\n2\n")
    count = over(tools.count_lines, "read")
    scene(count)
    for number in (1, 2):
        assert count("log") == 2
        proven(count, number)
    nothing_is_kept(state)


def test_a_read_that_changes_files_is_not_served(scene, state):
    Path("log").write_text("1\n2\n")
    made = scene(over(tools.count_and_note, "read"))
    assert made.play("count_and_note", name="log") == 2
    assert lines("reads") == ["read"], "the agent's own call has left this"
    assert made.outcomes[0] in ("stale", "failed")
    assert 'declared "read"' in made.bets()[0]["reason"]
    nothing_is_kept(state)


def test_outside_of_its_workspace_a_run_changes_nothing_and_is_not_served(scene, state, tmp_path):
    made = scene(over(tools.write_at))
    (tmp_path / "elsewhere").mkdir()
    target = str(tmp_path / "elsewhere/file")
    agent, calls = made.asked("write_at", path=target)
    assert not Path(target).exists()
    assert agent.act(calls) == [target]
    assert Path(target).read_text() == str(os.getpid())
    assert made.outcomes[0] != "hit"


def test_a_working_folder_that_was_left_makes_the_call_run_plainly(scene, state, tmp_path, monkeypatch):
    made = scene(over(tools.add_line))
    agent, calls = made.asked("add_line", text="A")
    monkeypatch.chdir(tmp_path)
    agent.act(calls)
    assert lines(str(tmp_path / "log")) == ["A"]
    assert lines(str(tmp_path / "workspace/log")) == []
