"""Tools that run ahead in another process: served only once they have proven to give there what they give here."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from typing import Any

import pytest

import agentspec
from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.channel import Grant
from agentspec.tools_sandbox import fidelity
from agentspec.tools_sandbox.capabilities import missing_tiers
from agentspec.tools_sandbox.declare import declared
from tests.contract import importable as tools
from tests.contract.sandboxed import SERVED, proven
from tests.contract.scripted import Gate, asks_for, eventually

pytestmark = pytest.mark.skipif("T1" in missing_tiers(), reason=f"T1: {missing_tiers().get('T1')}")


@pytest.fixture(autouse=True)
def _no_random_checks(monkeypatch):
    monkeypatch.setattr(fidelity, "RECHECKED_SHARE", 0.0)


@pytest.fixture
def trusted(monkeypatch):
    """Nothing has to prove itself."""
    monkeypatch.setattr(fidelity, "CHECKS", 0)


def in_process(function: Any, effect: str = "read", **options: Any) -> Any:
    options = {"stable_for": 30.0, "sandbox": "process"} | options
    return speculate(effect=effect, **options)(function)


def test_a_read_is_served_from_another_process_after_three_equal_results(scene):
    play = (made := scene(in_process(tools.look_up, same_result=tools.same_key))).play
    assert [play("look_up", key=key) for key in "ABC"] == [{"key": key, "pid": os.getpid()} for key in "ABC"]
    assert [bet["outcome"] for bet in made.bets(3)] == ["miss"] * 3
    assert {bet["reason"] for bet in made.bets(3)} == {"checked against the real call: equal"}
    served = play("look_up", key="D")
    assert served["key"] == "D"
    assert served["pid"] != os.getpid()
    last = made.bets(4)[-1]
    assert (last["outcome"] in SERVED, last["tier"], last["egress"]) == (True, "T1", False)
    assert last["saved_s"] > 0


def test_plain_calls_prove_it_as_well(scene):
    """Nobody guesses them; each is run once more in the sandbox, and compared."""
    look_up = in_process(tools.look_up, same_result=tools.same_key)
    made = scene(look_up)
    for number, key in enumerate("ABC", 1):
        assert look_up(key)["pid"] == os.getpid()
        proven(look_up, number)
    assert made.play("look_up", key="D")["pid"] != os.getpid()
    assert [bet["outcome"] in SERVED for bet in made.bets()] == [True]


def test_two_equal_results_are_not_enough(scene):
    look_up = in_process(tools.look_up, same_result=tools.same_key)
    made = scene(look_up)
    for number, key in enumerate("AB", 1):
        look_up(key)
        proven(look_up, number)
    assert made.play("look_up", key="C")["pid"] == os.getpid()


def test_an_async_tool_in_a_process_needs_no_loop_that_it_was_seen_on(scene, trusted):
    soon = in_process(tools.look_up_soon)
    made = scene(soon)
    agent, (call,) = made.asked("look_up_soon", key="A")
    assert asyncio.run(agent.tools[call.name](**call.arguments))["pid"] != os.getpid()
    assert made.bets()[0]["outcome"] in SERVED


@pytest.mark.parametrize("function", [tools.of_this_process, tools.own_pid, tools.undeclared_variable])
def test_a_tool_that_gives_something_else_there_is_barred_and_never_runs_ahead_again(scene, monkeypatch, function):
    monkeypatch.setenv("SECRET_THING", "mine")
    monkeypatch.setitem(tools.STATE, "user", "ada")
    tool = in_process(function)
    made, name, key = scene(tool), function.__name__, "SECRET_THING"
    assert made.play(name, key=key) == function(key)
    assert made.play(name, key=key) == function(key)
    first, second = made.bets(2)
    assert (first["outcome"], second["outcome"]) == ("miss", "vetoed")
    assert second["reason"].startswith(f"{name} is barred from T1: result: ")
    assert repr(function(key)) in second["reason"]


def test_a_tool_that_raises_there_alone_is_never_served(scene):
    """Its bets fail; plain calls run beside, and their comparison bars it."""
    tool = in_process(tools.fails_ahead)
    made = scene(tool)
    assert made.play("fails_ahead", key="A") == "A!"
    eventually(lambda: declared(tool).fidelity.barred, "it is barred")
    assert "exception" in declared(tool).fidelity.barred
    assert made.bets()[0]["outcome"] == "failed"
    assert "OutOfStock: A" in made.bets()[0]["reason"]


def test_a_tool_that_raises_here_and_there_raises_at_the_agent_its_own_error(scene, trusted):
    made = scene(in_process(tools.fail))
    agent, calls = made.asked("fail", key="A")
    with pytest.raises(tools.OutOfStock, match="A"):
        agent.act(calls)
    assert made.bets()[0]["outcome"] == "failed"


def test_errors_that_are_equal_speak_for_a_tool_and_not_against_it(scene):
    tool = in_process(tools.fail)
    scene(tool)
    with pytest.raises(tools.OutOfStock):
        tool("A")
    proven(tool)


def test_the_owners_comparison_that_raises_bars_the_tool_and_says_so(scene):
    def compare(one: Any, other: Any) -> bool:
        raise KeyError("no such thing")

    tool = in_process(tools.look_up, same_result=compare)
    made = scene(tool)
    assert made.play("look_up", key="A")["pid"] == os.getpid()
    eventually(lambda: declared(tool).fidelity.barred)
    assert "same_result= raised KeyError" in declared(tool).fidelity.barred


def test_the_owners_comparison_decides(scene):
    tool = in_process(tools.look_up, same_result=lambda one, other: False)
    made = scene(tool)
    made.play("look_up", key="A")
    made.play("look_up", key="B")
    assert "same_result= says that the results differ" in made.bets(2)[1]["reason"]


def test_what_is_served_is_checked_again_now_and_then(scene, trusted, monkeypatch):
    monkeypatch.setattr(fidelity, "RECHECKED_SHARE", 1.0)
    made = scene(in_process(tools.own_pid))
    assert made.play("own_pid", key="A") == os.getpid()
    made.play("own_pid", key="B")
    assert [bet["outcome"] for bet in made.bets(2)] == ["miss", "vetoed"]


def moved(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)


def with_another_region(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("REGION", "north")


def without_a_region(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("REGION")


def in_another_zone(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")


@pytest.mark.parametrize("change", [moved, with_another_region, without_a_region, in_another_zone])
def test_what_a_run_saw_of_this_process_must_still_hold_when_it_is_claimed(
    scene, trusted, monkeypatch, tmp_path, change
):
    monkeypatch.setenv("REGION", "south")
    made = scene(in_process(tools.where, sandbox=agentspec.Sandbox("process", env={"REGION"})))
    assert made.play("where", key="A") == tools.where("A")
    assert made.bets()[0]["outcome"] in SERVED
    agent, calls = made.asked("where", key="B")
    change(monkeypatch, tmp_path)
    assert agent.act(calls) == [tools.where("B")]
    assert made.proxy.claimed(2)[-1]["outcome"] == "miss"


def test_a_tool_sees_its_declared_variables_and_no_other(scene, trusted, monkeypatch):
    monkeypatch.setenv("REGION", "south")
    monkeypatch.setenv("SECRET_THING", "mine")
    made = scene(in_process(tools.undeclared_variable, sandbox=agentspec.Sandbox("process", env={"REGION"})))
    assert made.play("undeclared_variable", key="REGION") == "south"
    assert made.play("undeclared_variable", key="SECRET_THING") is None, "it was trusted, and ran without the secret"


def test_a_write_in_this_process_voids_a_read_in_another(scene, trusted):
    @speculate(effect="write", writes={"stock"})
    def sell(key: str) -> str:
        return key

    made = scene(in_process(tools.look_up, reads={"stock"}), sell)
    agent, calls = made.asked("look_up", key="A")
    sell("A")
    assert agent.act(calls)[0]["pid"] == os.getpid()
    assert made.outcomes == ["stale"]


def test_a_run_that_takes_longer_than_its_timeout_is_given_up(scene, trusted):
    made = scene(in_process(tools.never_ends_ahead, timeout_s=0.2))
    assert made.play("never_ends_ahead", key="A") == "A!"
    assert made.outcomes == ["failed"]
    assert "took longer than 0.2 s" in made.bets()[0]["reason"]


def test_two_equal_calls_in_two_conversations_get_a_run_each(scene, trusted):
    made = scene(in_process(tools.look_up))
    first, calls = made.asked("look_up", key="A")
    second, more = made.asked("look_up", key="A")
    pids = {first.act(calls)[0]["pid"], second.act(more)[0]["pid"], os.getpid()}
    assert len(pids) == 3
    assert made.outcomes == ["hit", "hit"]


def test_a_wrong_guess_is_never_handed_over(scene, trusted):
    made = scene(in_process(tools.look_up))
    made.guesses = [ToolCall("look_up", {"key": "C"})]
    agent, calls = made.think(*asks_for("look_up", {"key": "B"}, after=made.over()))
    assert agent.act(calls)[0] == {"key": "B", "pid": os.getpid()}
    assert made.outcomes == ["miss"]


@pytest.mark.parametrize("turns", range(5))
def test_a_call_that_is_cancelled_just_as_the_proxy_answers_is_cancelled(scene, trusted, monkeypatch, turns):
    """Whichever of the two the loop comes to first."""
    made = scene(in_process(tools.look_up_soon))
    agent, (call,) = made.asked("look_up_soon", key="A")
    answer: concurrent.futures.Future[Grant] = concurrent.futures.Future()
    asked = Gate()

    def ask(run: Any) -> Any:
        asked.open()
        return answer

    monkeypatch.setattr(made.runtime._runtime, "ask", ask)

    async def give_up() -> None:
        task = asyncio.ensure_future(agent.tools[call.name](**call.arguments))
        await asked.passed()
        answer.set_result(Grant(1, False, "no"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled()

    asyncio.run(give_up())
