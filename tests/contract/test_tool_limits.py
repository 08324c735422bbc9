"""What an owner or an operator may say against running ahead, and how much of it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.sandboxed import Scene
from tests.contract.scripted import Gate, asks_for, call, calls_end, say

READ: dict[str, Any] = {"effect": "read", "stable_for": 30.0}


class Get:
    """A tool that counts its runs, and holds those of `held` keys until its gate is opened."""

    def __init__(self, held: str = "", **options: Any) -> None:
        self.runs: list[str] = []
        self.go = Gate()

        @speculate(**{**READ, **options})
        def get(key: str) -> str:
            self.runs.append(key)
            if key in held:
                self.go.wait(5.0)
            return f"{key} {self.runs.count(key)}"

        self.tool = get


def parts(*keys: str) -> list[bytes]:
    """Parallel calls, one for each key."""
    return [chunk for i, key in enumerate(keys) for chunk in call("get", {"key": key}, f"c{i}", i)]


@pytest.mark.parametrize("word", [{"needs_approval": True}, {"ahead": False}], ids=str)
@pytest.mark.parametrize("effect", ["read", "pure"])
def test_a_tool_that_somebody_has_a_say_in_never_runs_ahead(scene, word, effect):
    get = Get(**word, effect=effect)
    made = scene(get.tool)
    made.guesses = [ToolCall("get", {"key": "A"})]
    agent, calls = made.think(say("x"), 0.05, *parts("A", "B"), *calls_end())
    assert get.runs == []
    assert agent.act(calls) == ["A 1", "B 1"]
    assert set(made.outcomes) <= {"vetoed"}


@pytest.mark.parametrize("word", [{"needs_approval": True}, {"ahead": False}], ids=str)
def test_a_read_that_never_runs_ahead_is_still_no_write(scene, word):
    @speculate(**READ, **word)
    def ask(order_id: str) -> str:
        return "yes"

    get = Get()
    made = scene(get.tool, ask)
    made.guesses = [ToolCall("get", {"key": "A"})]
    both = [*call("ask", {"order_id": "1"}, "c0", 0), *call("get", {"key": "A"}, "c1", 1)]
    agent, calls = made.think(say("x"), made.over(), *both, *calls_end())
    assert agent.act(calls) == ["yes", "A 1"]
    assert made.outcomes[0] == "hit"


@pytest.mark.parametrize("word", [{"needs_approval": True}, {"ahead": False}], ids=str)
def test_a_write_that_never_runs_ahead_is_still_a_write(scene, word):
    @speculate(effect="write", **word)
    def book(order_id: str) -> str:
        return "booked"

    get = Get()
    made = scene(get.tool, book)
    agent, calls = made.asked("get", key="A")
    book("1")
    assert agent.act(calls) == ["A 2"]
    both = [*call("book", {"order_id": "1"}, "c0", 0), *call("get", {"key": "B"}, "c1", 1)]
    made.guesses = [ToolCall("get", {"key": "B"})]
    agent, calls = made.think(say("x"), made.over(), *both, *calls_end())
    assert agent.act(calls) == ["booked", "B 2"]
    assert made.outcomes[:2] == ["stale", "stale"]


def test_a_tool_that_the_operator_switched_off_never_runs_ahead(scene):
    get = Get()
    made = scene(get.tool, tools_off=("get",))
    made.guesses = [ToolCall("get", {"key": "A"})]
    agent, calls = made.think(say("x"), made.over(), 0.05, *parts("A", "B"), *calls_end())
    assert get.runs == []
    assert agent.act(calls) == ["A 1", "B 1"]
    assert {bet["reason"] for bet in made.bets()} == {"get is switched off (tools_off)"}


def test_another_tool_runs_ahead_beside_one_that_is_switched_off(scene):
    get = Get()
    made = scene(get.tool, tools_off=("got",))
    assert made.play("get", key="A") == "A 1"
    assert made.outcomes == ["hit"]


def test_no_more_runs_at_once_than_max_inflight(scene):
    get = Get(held="ABC", max_inflight=2)
    made = scene(get.tool)
    made.guesses = [ToolCall("get", {"key": key}) for key in "ABC"]
    agent, calls = made.think(say("x"), made.over(1), *parts("A", "B", "C"), *calls_end())
    assert get.runs == ["A", "B"]
    get.go.open()
    assert agent.act(calls) == ["A 1", "B 1", "C 1"]
    assert made.outcomes == ["hit", "hit", "vetoed"]
    assert "max_inflight" in made.bets(3)[2]["reason"]


def test_a_run_that_is_over_makes_room_for_the_next(scene):
    get = Get(max_inflight=1)
    made = scene(get.tool)
    for key in "ABC":
        assert made.play("get", key=key) == f"{key} 1"
    assert made.outcomes == ["hit"] * 3


def test_real_calls_are_never_held_back_by_limits(scene):
    get = Get(held="ABCDE", max_inflight=1, rate=0.001)
    scene(get.tool)
    threads = [threading.Thread(target=get.tool, args=(key,)) for key in "ABCDE"]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 5
    while len(get.runs) < 5 and time.monotonic() < deadline:
        time.sleep(0.005)
    assert sorted(get.runs) == list("ABCDE")
    get.go.open()
    for thread in threads:
        thread.join(5)


def test_no_more_runs_start_in_a_second_than_its_rate(scene):
    get = Get(rate=2)
    made = scene(get.tool)
    made.guesses = [ToolCall("get", {"key": key}) for key in "ABC"]
    agent, calls = made.think(say("x"), made.over(3), *parts("A", "B", "C"), *calls_end())
    assert get.runs == ["A", "B"]
    assert agent.act(calls) == ["A 1", "B 1", "C 1"]
    assert made.outcomes == ["hit", "hit", "vetoed"]
    assert "rate allows 2 runs ahead a second" in made.bets(3)[2]["reason"]


def test_a_run_that_takes_longer_than_timeout_s_is_given_up(scene):
    get = Get(held="A", timeout_s=0.1)
    made = scene(get.tool)
    agent, calls = made.asked("get", key="A")
    get.go.open()
    assert agent.act(calls) == ["A 2"]
    assert made.outcomes == ["failed"]
    assert made.bets()[0]["reason"] == "took longer than timeout_s=0.1"


def test_the_ledger_tells_where_each_bet_ran_and_whether_it_went_out(scene):
    @speculate(**READ, egress=True)
    def search(key: str) -> str:
        return key

    get = Get()
    made = scene(get.tool, search, egress_discards_per_hour=5)
    made.guesses = [ToolCall("get", {"key": "A"}), ToolCall("search", {"key": "A"}), ToolCall("nobody", {})]
    made.think(say("x"), made.over(3))
    rows = {bet["tool"]: (bet["tier"], bet["egress"]) for bet in made.bets(3)}
    assert rows["get"] == ("T0", False)
    assert rows["search"][0] == "T0"
    assert rows["nobody"] == (None, False)


# Calls whose arguments reach third parties


class Certain:
    """Guesses that the gate takes for certain: what goes out needs a higher bar than a new predictor clears."""

    def __init__(self, made: Scene, monkeypatch: Any) -> None:
        calibration = made.proxy.deps.desk.judge.calibration
        monkeypatch.setattr(calibration, "probability", lambda claimed: 1.0)


class Search:
    def __init__(self, **options: Any) -> None:
        self.runs: list[str] = []

        @speculate(**{**READ, "egress": True, **options})
        def search(key: str) -> str:
            self.runs.append(key)
            return f"{key}!"

        self.tool = search


def wrong(made: Scene, key: str) -> None:
    """A guess that nobody makes."""
    made.guesses = [ToolCall("search", {"key": key})]
    made.think(say("x"), made.over())
    made.outcomes  # noqa: B018  (waits)


def test_a_guess_that_goes_out_has_to_clear_a_higher_bar(scene):
    """A predictor of which nothing is known yet clears that of other tools."""
    search, get = Search(), Get()
    made = scene(search.tool, get.tool)
    made.guesses = [ToolCall("search", {"key": "A"}), ToolCall("get", {"key": "A"})]
    made.think(say("x"), made.over(2))
    assert (search.runs, get.runs) == ([], ["A"])


def test_after_so_many_wrong_guesses_in_an_hour_none_goes_out(scene, monkeypatch):
    search, get = Search(), Get()
    made = scene(search.tool, get.tool, egress_discards_per_hour=2)
    Certain(made, monkeypatch)
    for key in "ABC":
        wrong(made, key)
    assert search.runs == ["A", "B"]
    assert made.bets(3)[2]["reason"] == "the egress budget of this hour is spent"
    assert [bet["egress"] for bet in made.bets(3)] == [True, True, False]
    assert made.play("get", key="A") == "A 1"
    assert made.outcomes[-1] == "hit", "what reaches nobody runs as before"


def test_right_guesses_cost_nothing_of_the_budget(scene, monkeypatch):
    search = Search()
    made = scene(search.tool, egress_discards_per_hour=1)
    Certain(made, monkeypatch)
    for key in "ABC":
        assert made.play("search", key=key) == f"{key}!"
    assert made.outcomes == ["hit"] * 3
    wrong(made, "D")
    wrong(made, "E")
    assert search.runs == list("ABCD")


def test_what_is_still_out_counts_as_well(scene, monkeypatch):
    search = Search()
    made = scene(search.tool, egress_discards_per_hour=2)
    Certain(made, monkeypatch)
    made.guesses = [ToolCall("search", {"key": key}) for key in "ABC"]
    made.think(say("x"), made.over(3))
    assert search.runs == ["A", "B"]


def test_a_budget_of_nothing_lets_nothing_out(scene, monkeypatch):
    search = Search()
    made = scene(search.tool, egress_discards_per_hour=0)
    Certain(made, monkeypatch)
    assert made.play("search", key="A") == "A!"
    assert search.runs == ["A"]
    assert made.outcomes == ["vetoed"]


def test_a_run_that_was_refused_has_told_nobody_anything(scene, monkeypatch):
    search = Search(rate=0.001)
    made = scene(search.tool, egress_discards_per_hour=2)
    Certain(made, monkeypatch)
    assert made.play("search", key="A") == "A!"
    for key in "BCD":
        wrong(made, key)
    assert ["rate allows" in bet["reason"] for bet in made.bets(4)[1:]] == [True] * 3
    assert search.runs == ["A"]


def test_another_tenants_wrong_guesses_are_its_own(scene, monkeypatch):
    search = Search()
    made = scene(search.tool, egress_discards_per_hour=1)
    Certain(made, monkeypatch)
    wrong(made, "A")
    made.guesses = [ToolCall("search", {"key": "B"})]
    other = made.new_agent()
    other.headers = {"Authorization": "Bearer another"}
    made.think(*asks_for("search", {"key": "C"}, after=made.over()), agent=other)
    assert search.runs == ["A", "B"]
