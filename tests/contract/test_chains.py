"""Calls of the next turn that run ahead in this one: served where that turn makes them, discarded where not."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.protocols import Prediction
from tests.contract.scripted import Gate, asks_for, call, calls_end, eventually, say, speaks
from tests.contract.support import BOTH_WAYS, Guesses, plain_client, undeclared
from tests.contract.turns import SERVED

pytestmark = BOTH_WAYS

FIND = ToolCall("find", {"name": "Anna"})


class Sees:
    """Foresees what it is told to, whenever it is asked; notes what was assumed."""

    name = "chain"

    def __init__(self, *calls: ToolCall, confidence: float = 0.99) -> None:
        self.calls, self.confidence = calls, confidence
        self.assumed: list[Sequence[Any]] = []

    async def after(self, turn: Any, messages: Sequence[Any]) -> list[Prediction]:
        self.assumed.append(messages)
        name = f"chain-{len(self.assumed)}"
        return [Prediction(call, name, self.confidence, 1.0, calibrated=True) for call in self.calls]


class World:
    """Anna's order: found in one turn, read in the next, and cancelled by a tool that nobody declared."""

    def __init__(self, stable_for: float = 30.0) -> None:
        self.state = "open"
        self.runs: list[str] = []
        self.ran = Gate()
        self.go: Gate | None = None

        @speculate(effect="read", reads={"customers"}, stable_for=30.0)
        def find(name: str) -> dict[str, str]:
            return {"customer": name, "order": "A"}

        @speculate(effect="read", reads={"orders"}, stable_for=stable_for)
        def get(key: str) -> str:
            self.runs.append(key)
            self.ran.open()
            if self.go is not None:
                self.go.wait()
            return f"{key} {self.state}"

        @speculate(effect="write", writes={"orders"})
        def close(key: str) -> str:
            self.state = "closed"
            return "closed"

        self.find, self.get, self.close = find, get, close
        self.tools = (find, get, close)

    def cancel(self, order_id: str) -> str:
        self.state = "cancelled"
        return "ok"


def get(key: str) -> ToolCall:
    return ToolCall("get", {"key": key})


def made(one: ToolCall, identity: str, after: Any = None) -> list[Any]:
    return asks_for(one.name, one.arguments, id=identity, after=after)


class Scene:
    """A proxy whose chains see what a test says, one agent of that world, and what it asked for so far."""

    def __init__(self, proxy: Any, runtime: Any, agent: Any, world: World) -> None:
        self.proxy, self.runtime, self.agent, self.world = proxy, runtime, agent, world

    @property
    def chains(self) -> Any:
        return self.proxy.deps.desk.chains

    def look(self, sees: Sees, depth: int = 1) -> Sees:
        self.chains.foresees, self.chains.depth = sees, depth
        return sees

    def chained(self, count: int = 1) -> list[dict[str, Any]]:
        """The settled bets of chains that ran."""

        def found() -> list[dict[str, Any]]:
            mine = [bet for bet in self.proxy.bets() if bet["predictor"].startswith("chain")]
            return [bet for bet in mine if bet["outcome"] != "vetoed"]

        eventually(lambda: len(found()) >= count, f"{count} chained bets; there are {self.proxy.bets()}")
        return found()

    def find_first(self) -> None:
        """The first turn to its end, and the order has been read ahead; nothing is foreseen beyond later ones."""
        calls = self.agent.think()
        assert self.world.ran.wait()
        assert self.agent.act(calls) == [{"customer": "Anna", "order": "A"}]
        self.chains.foresees = None


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    return World(getattr(request, "param", 30.0))


@pytest.fixture
def scene(endpoint: Any, start: Any, join: Any, agent_of: Any, world: World) -> Any:
    def build(*speculators: Any, **settings: Any) -> Scene:
        proxy = start(*speculators, **settings)
        runtime = join(proxy, *world.tools)
        agent = agent_of(runtime, *world.tools)
        undeclared(agent, "cancel", world.cancel)
        return Scene(proxy, runtime, agent, world)

    return build


def test_a_call_of_the_next_turn_runs_while_the_agent_is_still_at_this_one_and_is_served(endpoint, scene, world):
    one = scene()
    sees = one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c2"), speaks())
    one.find_first()
    assert one.agent.turn() == ["A open"]
    assert world.runs == ["A"]
    (bet,) = one.chained()
    assert bet["outcome"] in SERVED
    second = max(one.proxy._reader.every_turn(), key=lambda turn: turn["began_at"])
    assert bet["turn"] == second["id"] and bet["offered_s"] < 0
    (assumed,) = sees.assumed
    assert [(call.name, call.arguments) for call in assumed[0].calls] == [("find", {"name": "Anna"})]


def test_where_the_next_turn_calls_something_else_it_is_a_miss_and_nothing_is_served(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("B"), "c2"))
    one.find_first()
    assert one.agent.turn() == ["B open"]
    (bet,) = one.chained()
    assert (bet["outcome"], bet["reason"]) == ("miss", "the turn made no such call")
    assert world.runs == ["A", "B"]


def test_the_same_call_is_not_run_twice_for_two_turns(endpoint, scene, world):
    """The next turn's own predictors name the call that runs already."""
    one = scene(Guesses(lambda turn: [get("A")] if len(turn.history) > 1 else []))
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c2"), speaks())
    one.find_first()
    assert one.agent.turn() == ["A open"]
    assert world.runs == ["A"]


def test_a_call_that_this_turn_makes_after_all_is_served_in_this_turn(endpoint, scene, world):
    one = scene(Guesses(FIND, calibrated=True))
    one.look(Sees(get("A")))
    first, second = call("find", FIND.arguments, "c1", 0), call("get", {"key": "A"}, "c2", 1)
    endpoint.answers([say("Both."), world.ran, *first, *second, *calls_end()], speaks())
    assert one.agent.turn() == [{"customer": "Anna", "order": "A"}, "A open"]
    assert one.chained()[0]["outcome"] in SERVED


# Writes, and age


def test_a_write_of_the_next_turn_makes_it_stale(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    first, second = call("cancel", {"order_id": "A"}, "c2", 0), call("get", {"key": "A"}, "c3", 1)
    endpoint.answers(made(FIND, "c1"), [say("x"), *first, *second, *calls_end()])
    one.find_first()
    assert one.agent.turn() == ["ok", "A cancelled"]
    assert one.chained()[0]["outcome"] == "stale"


def test_a_write_that_the_agents_process_does_on_its_own_makes_it_stale(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c2"))
    one.find_first()
    world.close("A")
    one.chains.foresees = None
    assert one.agent.turn() == ["A closed"]
    assert one.chained()[0]["outcome"] == "stale"


def test_nothing_is_foreseen_beyond_an_answer_that_writes(endpoint, scene, world):
    one = scene()
    sees = one.look(Sees(get("A")))
    first, second = call("find", FIND.arguments, "c1", 0), call("cancel", {"order_id": "A"}, "c2", 1)
    endpoint.answers([say("x"), *first, *second, *calls_end()], made(get("A"), "c3"))
    one.agent.turn()
    assert one.agent.turn() == ["A cancelled"]
    assert not any(call.name == "cancel" for messages in sees.assumed for said in messages for call in said.calls)
    assert world.runs == ["A"]


def test_a_write_of_another_trajectory_makes_it_stale(endpoint, scene, world, agent_of):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(ToolCall("cancel", {"order_id": "A"}), "c9"), made(get("A"), "c2"))
    one.find_first()
    other = agent_of(one.runtime, *world.tools, question="another conversation")
    undeclared(other, "cancel", world.cancel)
    other.turn()
    one.chains.foresees = None
    assert one.agent.turn() == ["A cancelled"]
    assert one.chained()[0]["outcome"] == "stale"


@pytest.mark.parametrize("world", [0.05], indirect=True)
def test_age_counts_from_the_start_of_the_run_not_from_its_turn(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c2"))
    one.find_first()
    time.sleep(0.06)
    one.chains.foresees = None
    assert one.agent.turn() == ["A open"]
    assert world.runs == ["A", "A"]
    assert one.chained()[0]["outcome"] == "stale"


# How a trajectory goes on


def test_of_two_branches_the_first_has_the_run_and_each_gets_a_result_of_its_own(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c2"), made(get("A"), "c3"))
    one.find_first()
    messages = copy.deepcopy(one.agent.messages)
    assert one.agent.turn() == ["A open"]
    world.state = "branched"
    one.agent.messages = messages
    assert one.agent.turn() == ["A branched"]
    assert world.runs == ["A", "A"]
    assert [bet["outcome"] in SERVED for bet in one.chained()] == [True]


def test_a_retry_of_the_next_request_gives_it_up(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c2"), made(get("A"), "c2"))
    one.find_first()
    messages = copy.deepcopy(one.agent.messages)
    one.agent.think()
    one.agent.messages, one.agent.headers = messages, {"x-stainless-retry-count": "1"}
    world.state = "new"
    assert one.agent.turn() == ["A new"]
    assert one.chained()[0]["outcome"] == "unclaimed"


def test_a_retry_of_its_own_request_gives_it_up(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("B"), "c1"))
    messages = copy.deepcopy(one.agent.messages)
    one.agent.think()
    assert world.ran.wait()
    one.chains.foresees = None
    one.agent.messages, one.agent.headers = messages, {"x-stainless-retry-count": "1"}
    assert one.agent.turn() == ["B open"]
    assert one.chained()[0]["outcome"] == "unclaimed"


def test_a_user_who_goes_on_without_the_result_gives_it_up(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), speaks())
    one.find_first()
    one.agent.messages.append({"role": "user", "content": "something else, please"})
    one.agent.think()
    (bet,) = one.chained()
    assert (bet["outcome"], bet["reason"]) == ("unclaimed", "the trajectory went on without claiming it")


def test_a_trajectory_that_begins_meanwhile_takes_over_nothing(endpoint, scene, world, agent_of):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), speaks(), made(get("A"), "c2"))
    one.find_first()
    agent_of(one.runtime, *world.tools, question="who am I?").think()
    assert one.agent.turn() == ["A open"]
    assert one.chained()[0]["outcome"] in SERVED


def test_another_processs_agent_is_served_nothing_of_it(endpoint, scene, world, start, join, agent_of):
    one, theirs = scene(), World()
    theirs.state = "theirs"
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c5"))
    one.find_first()
    other = agent_of(one.runtime, *theirs.tools, question="mine")  # its tools are no tools of that runtime
    assert other.turn() == ["A theirs"]
    assert theirs.runs == ["A"]


def test_another_tenant_who_tells_the_same_messages_takes_over_nothing(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c5"), made(get("A"), "c2"))
    one.find_first()
    body = {"model": "m", "stream": True, "messages": one.agent.messages, "tools": one.agent.schemas}
    client, url = plain_client(one.runtime), f"{one.runtime.base_url}/chat/completions"
    with client:
        client.post(url, json=body, headers={"Authorization": "Bearer another"})
    assert one.agent.turn() == ["A open"]
    (bet,) = one.chained()
    mine = {turn["id"]: turn["trajectory"] for turn in one.proxy._reader.every_turn()}
    assert bet["outcome"] in SERVED and list(mine.values()).count(mine[bet["turn"]]) == 2


def test_a_client_that_leaves_before_the_next_turn_has_called_gives_it_up(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    stuck = Gate()
    endpoint.answers(made(FIND, "c1"), [say("Let me"), stuck, *call("get", {"key": "A"}), *calls_end()])
    one.find_first()
    body = {"model": "m", "stream": True, "messages": one.agent.messages, "tools": one.agent.schemas}
    client, url = plain_client(one.runtime), f"{one.runtime.base_url}/chat/completions"
    with client, client.stream("POST", url, json=body, headers={"Authorization": "Bearer k"}) as answer:
        next(answer.iter_raw())
    assert one.chained()[0]["reason"] == "the client left"
    stuck.open()


def test_a_runtime_that_leaves_takes_its_runs_with_it(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c2"))
    one.find_first()
    one.runtime._channel.close()
    (bet,) = one.chained()
    assert (bet["outcome"], bet["reason"]) == ("failed", "the runtime's channel closed")
    assert world.get("A") == "A open"


# What it rests on


def test_what_rests_on_a_guess_goes_with_it(endpoint, scene, world):
    """The first run is a guess; on its result another call is bet on; then the model calls something else."""
    one = scene(Guesses(lambda turn: [FIND] if len(turn.history) == 1 else [], calibrated=True))
    one.look(Sees(get("A")))
    endpoint.answers([say("x"), world.ran, *call("get", {"key": "Z"}), *calls_end()])
    one.agent.think()
    (bet,) = one.chained()
    assert (bet["outcome"], bet["reason"]) == ("miss", "what it rested on was not called")
    assert {bet["outcome"] for bet in one.proxy.settled(2) if bet["tool"] == "find"} == {"miss"}


def test_what_rests_on_a_guess_that_comes_true_is_served_a_turn_later(endpoint, scene, world):
    one = scene(Guesses(lambda turn: [FIND] if len(turn.history) == 1 else [], calibrated=True))
    one.look(Sees(get("A")))
    endpoint.answers([say("x"), world.ran, *call("find", FIND.arguments, "c1"), *calls_end()], made(get("A"), "c2"))
    one.find_first()
    assert one.agent.turn() == ["A open"]
    assert one.chained()[0]["outcome"] in SERVED
    assert world.runs == ["A"]


def test_results_are_told_only_where_their_owner_says_so(endpoint, scene, world, way):
    one = scene(Guesses(lambda turn: [FIND] if len(turn.history) == 1 else [], calibrated=True))
    sees = one.look(Sees(get("A")))
    endpoint.answers([say("x"), world.ran, *call("find", FIND.arguments, "c1"), *calls_end()], speaks())
    one.find_first()
    told = {text for messages in sees.assumed for said in messages for text in said.results}
    assert told == (set() if way == "served" else {'{"customer":"Anna","order":"A"}'})


# Several calls in one answer


class InStep:
    """Guesses a call, and one that follows it in the same answer; the second only after it was asked to."""

    name = "row"

    def __init__(self, *calls: ToolCall) -> None:
        self.calls = calls

    async def speculate(self, turn: Any, offer: Any) -> None:
        if len(turn.history) > 1:
            return
        for nth, one in enumerate(self.calls):
            chance, follows = 0.95**nth, self.calls[:nth]
            offer(Prediction(one, f"row-{nth}", 0.95, 1.0, calibrated=True, rests_on=chance, follows=follows))


def test_a_run_that_follows_a_guess_goes_on_when_that_guess_comes_true(endpoint, scene, world, monkeypatch):
    """Others that go on at that moment are stopped where a second call is unlikely."""
    one = scene(InStep(FIND, get("A")))
    world.go = Gate()
    first, second = call("find", FIND.arguments, "c1", 0), call("get", {"key": "A"}, "c2", 1)
    endpoint.answers([say("Both."), world.ran, *first, 0.05, *second, *calls_end()])
    monkeypatch.setattr(type(one.proxy.deps.desk.judge), "still_worth", lambda *_: False)
    calls = one.agent.think()
    world.go.open()
    assert one.agent.act(calls) == [{"customer": "Anna", "order": "A"}, "A open"]
    assert world.runs == ["A"]
    assert {bet["outcome"] in SERVED for bet in one.proxy.settled(2)} == {True}


def test_its_confidence_is_put_to_the_test_only_where_what_it_follows_came(endpoint, scene, world):
    one = scene(InStep(FIND, get("A")))
    endpoint.answers([say("x"), *call("get", {"key": "Z"}), *calls_end()])
    one.agent.turn()
    calibration = one.proxy.deps.desk.judge.calibration
    eventually(lambda: len(calibration.bound("row-1")._order) == 1)
    assert calibration.predictors() == ["row-0"]


# Budgets and switches


@pytest.mark.parametrize("settings", [{"max_runs_per_turn": 0}, {"runs_at_once": 0}, {"tools_off": ("get",)}])
def test_what_holds_other_runs_back_holds_chained_ones_back(endpoint, scene, world, settings):
    one = scene(**settings)
    sees = one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c2"))
    one.agent.turn()
    eventually(lambda: [b for b in one.proxy.bets() if b["predictor"].startswith("chain")])
    assert world.runs == []
    assert sees.assumed


@pytest.mark.parametrize("why", ["depth", "held out", "speculation"])
def test_nothing_is_foreseen_where_that_is_off(endpoint, scene, world, why):
    settings = {"held out": {"holdout_share": 1.0}, "speculation": {"speculation": False}}.get(why, {})
    one = scene(**settings)
    sees = one.look(Sees(get("A")), depth=0 if why == "depth" else 1)
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c2"))
    one.agent.turn()
    assert one.agent.turn() == ["A open"]
    assert sees.assumed == [] and one.proxy.bets() == []


def test_an_unlikely_one_waits_for_the_next_turn(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A"), confidence=0.02))
    endpoint.answers(made(FIND, "c1"), speaks())
    one.agent.turn()
    eventually(one.proxy.bets)
    assert world.runs == []


@pytest.mark.parametrize("ill", ["raises", "hangs", "rubbish"])
def test_one_who_cannot_foresee_costs_a_count_and_nothing_else(endpoint, scene, world, ill):
    class Ill:
        name = "ill"

        async def after(self, turn: Any, messages: Any) -> Any:
            if ill == "hangs":
                await asyncio.Event().wait()
            if ill == "raises":
                raise RuntimeError("blind")
            return [Prediction(get("A"), "ill", 7.0, 1.0)]

    one = scene()
    one.look(Ill())  # type: ignore[arg-type]
    endpoint.answers(made(FIND, "c1"), made(get("A"), "c2"))
    one.agent.turn()
    assert one.agent.turn() == ["A open"]
    assert world.runs == ["A"]
    assert set(one.proxy.deps.desk.books.faults) == (set() if ill == "hangs" else {"ill"})


def test_nothing_is_kept_of_an_answer_that_broke_off(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers([say("x"), *call("find", FIND.arguments, "c1")[:2]])
    with suppress(Exception):  # the SDK may or may not mind half a call
        one.agent.think()
    eventually(one.proxy._reader.every_turn)
    assert len(one.chains._live) == 1
    one.chains.expire(0.0)
    assert one.chains._live == {}
    assert world.runs == []


def test_nothing_is_kept_of_a_trajectory_that_nobody_continues(endpoint, scene, world):
    one = scene()
    one.look(Sees(get("A")))
    endpoint.answers(made(FIND, "c1"))
    one.find_first()
    assert len(one.chains._live) == 1
    one.chains.expire(60.0)
    assert len(one.chains._live) == 1
    one.chains.expire(0.0)
    assert one.chains._live == {}
