"""Every bet ends in exactly one outcome, whatever becomes of its turn."""

from __future__ import annotations

import random
import threading
import time

import httpx
import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.protocols import Prediction
from tests.contract.scripted import DONE, Gate, asks_for, call, calls_end, event, eventually, say, speaks
from tests.contract.support import BOTH_WAYS, Guesses, plain_client

pytestmark = BOTH_WAYS

SERVED = ("hit", "joined")
OUTCOMES = {"hit", "joined", "miss", "stale", "failed", "vetoed", "unclaimed"}


class Get:
    """A read tool that counts its runs by argument."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.ran = {key: Gate() for key in "ABCDEF"}

        @speculate(effect="read", reads={"things"}, stable_for=30.0)
        def get(key: str) -> list[str]:
            self.runs.append(key)
            self.ran[key].open()
            return [f"{key}{self.runs.count(key)}"]

        self.tool = get


@pytest.fixture
def get() -> Get:
    return Get()


def guess(*keys: str) -> Guesses:
    return Guesses(*(ToolCall("get", {"key": key}) for key in keys))


def test_three_calls_in_one_turn_are_three_hits(endpoint, start, join, agent_of, get):
    proxy = start(guess("A", "B", "C"))
    agent = agent_of(join(proxy, get.tool), get.tool)
    calls = [chunk for i, key in enumerate("CAB") for chunk in call("get", {"key": key}, f"c{i}", i)]
    endpoint.answers([say("x"), *(get.ran[key] for key in "ABC"), *calls, *calls_end()])
    assert agent.turn() == [["C1"], ["A1"], ["B1"]]
    assert [bet["outcome"] in SERVED for bet in proxy.settled(3)] == [True] * 3
    assert sorted(get.runs) == ["A", "B", "C"]


def test_two_equal_calls_in_one_turn_get_a_run_each(endpoint, start, join, agent_of, get):
    proxy = start(guess("A", "A"))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers([
        say("x"), get.ran["A"], *call("get", {"key": "A"}, "c0"), *call("get", {"key": "A"}, "c1", 1), *calls_end()
    ])  # fmt: skip
    first, second = agent.turn()
    assert {first[0], second[0]} == {"A1", "A2"}
    assert first is not second


def test_calls_that_closed_start_while_the_next_one_is_still_written(endpoint, start, join, agent_of, get):
    """Nobody guessed them: they are known before the answer is over."""
    proxy = start()
    agent = agent_of(join(proxy, get.tool), get.tool)
    calls = [call("get", {"key": key}, f"c{i}", i) for i, key in enumerate("AB")]
    endpoint.answers([say("x"), *calls[0], calls[1][0], get.ran["A"], *calls[1][1:], *calls_end()])
    assert agent.turn() == [["A1"], ["B1"]]
    assert [bet["predictor"] for bet in proxy.settled()] == ["eager"]
    assert proxy.claimed(2)[0]["outcome"] in SERVED


def test_with_speculation_off_nothing_runs_ahead(endpoint, start, join, agent_of, get):
    proxy = start(guess("A"), speculation=False)
    agent = agent_of(join(proxy, get.tool), get.tool)
    calls = [call("get", {"key": key}, f"c{i}", i) for i, key in enumerate("AB")]
    endpoint.answers([say("x"), *calls[0], calls[1][0], 0.2, *calls[1][1:], *calls_end()])
    agent.think()
    assert get.runs == []
    assert sum(proxy.deps.desk.books.counts.values()) == 0
    assert len(proxy.deps.desk.books._open) == 0


def test_a_guess_that_was_too_unsure_runs_once_it_is_surer(endpoint, start, join, agent_of, get):
    class Warms:
        name = "warms"

        async def speculate(self, turn, offer):
            for sure in (0.01, 0.99):
                offer(Prediction(ToolCall("get", {"key": "A"}), self.name, 1.0, sure))

    proxy = start(Warms())
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(asks_for("get", {"key": "A"}, after=get.ran["A"]))
    assert agent.turn() == [["A1"]]
    assert proxy.claimed()[0]["outcome"] in SERVED


def leave_after(runtime, agent, chunks: int) -> None:
    """Send the agent's request and close the connection after so many chunks."""
    body = {"model": "m", "messages": agent.messages, "tools": agent.schemas, "stream": True}
    url = f"{runtime.base_url}/chat/completions"
    with plain_client(runtime) as client, client.stream("POST", url, json=body, timeout=20) as answer:
        seen = b""
        for chunk in answer.iter_raw():
            seen += chunk
            if seen.count(b"\n\n") >= chunks:
                return


def test_a_client_that_leaves_early_stops_the_endpoint_and_its_bets(endpoint, start, join, agent_of, get):
    proxy = start(guess("A"))
    runtime = join(proxy, get.tool)
    never = Gate()
    endpoint.answers([say("x"), get.ran["A"], say("y"), never])
    leave_after(runtime, agent_of(runtime, get.tool), 2)
    assert endpoint.exchanges[0].cancelled.wait(1.5)
    (bet,) = proxy.settled()
    assert bet["outcome"] == "unclaimed"


def test_a_client_that_leaves_before_the_first_byte_stops_the_endpoint(endpoint, start, join, agent_of, get):
    proxy = start(guess("A"))
    runtime = join(proxy, get.tool)
    endpoint.answers([Gate()])
    body = {"model": "m", "messages": [], "tools": agent_of(runtime, get.tool).schemas, "stream": True}
    with plain_client(runtime) as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"{runtime.base_url}/chat/completions", json=body, timeout=httpx.Timeout(5, read=0.3))
    assert endpoint.exchanges[0].cancelled.wait(1.5)
    (bet,) = proxy.settled()
    assert bet["outcome"] == "unclaimed"


def test_a_client_that_leaves_in_the_middle_of_a_call_gives_its_bets_up(endpoint, start, join, agent_of, get):
    proxy = start(guess("A"))
    runtime = join(proxy, get.tool)
    endpoint.answers([say("x"), get.ran["A"], *call("get", {"key": "A"})[:2], Gate()])
    leave_after(runtime, agent_of(runtime, get.tool), 3)
    (bet,) = proxy.settled()
    assert bet["outcome"] == "unclaimed"


def test_a_client_that_leaves_after_the_last_call_still_gets_its_hit(endpoint, start, join, agent_of, get):
    proxy = start(guess("A"))
    runtime = join(proxy, get.tool)
    endpoint.answers([say("x"), get.ran["A"], *call("get", {"key": "A"}), event({}, "tool_calls"), Gate()])
    leave_after(runtime, agent_of(runtime, get.tool), 5)
    assert get.tool("A") == ["A1"]
    assert proxy.settled()[0]["outcome"] in SERVED


def test_a_client_that_leaves_after_the_end_of_a_spoken_answer_is_a_miss(endpoint, start, join, agent_of, get):
    """SDKs close at [DONE], before the connection has ended."""
    proxy = start(guess("A"))
    runtime = join(proxy, get.tool)
    endpoint.answers([get.ran["A"], say("x"), event({}, "stop"), DONE, Gate()])
    leave_after(runtime, agent_of(runtime, get.tool), 3)
    (bet,) = proxy.settled()
    assert bet["outcome"] == "miss"


def test_an_endpoint_that_breaks_off_breaks_the_answer_off(endpoint, start, join, agent_of, get):
    class Broken:
        def __iter__(self):
            yield say("x")
            get.ran["A"].wait()
            raise RuntimeError("the endpoint dies")

    proxy = start(guess("A"))
    runtime = join(proxy, get.tool)
    endpoint.script = lambda exchange, number: Broken()
    with pytest.raises(httpx.RemoteProtocolError):
        leave_after(runtime, agent_of(runtime, get.tool), 99)
    (bet,) = proxy.settled()
    assert bet["outcome"] in ("miss", "unclaimed", "failed")


def test_what_was_not_claimed_is_booked_when_the_conversation_goes_on(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(lambda turn: [ToolCall("get", {"key": "A"})] if len(turn.history) == 1 else []))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(asks_for("get", {"key": "A"}, after=get.ran["A"]))
    (made,) = agent.think()
    agent.told(made, "the user said no")
    agent.think()
    (bet,) = proxy.settled()
    assert bet["outcome"] == "unclaimed"
    assert get.tool("A") == ["A2"]


def test_a_bet_that_nobody_claims_ends_in_time(endpoint, start, join, agent_of, get):
    proxy = start(guess("A"), bet_limit_s=0.05)
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(asks_for("get", {"key": "A"}, after=get.ran["A"]))
    agent.think()
    time.sleep(0.1)  # its limit
    proxy.deps.desk.books.expire()
    (bet,) = proxy.settled()
    assert bet["outcome"] == "unclaimed"
    assert get.tool("A") == ["A2"]


def test_open_bets_are_booked_when_the_runtime_leaves(endpoint, start, join, agent_of, get):
    proxy = start(guess("A"))
    runtime = join(proxy, get.tool)
    endpoint.answers(asks_for("get", {"key": "A"}, after=get.ran["A"]))
    agent_of(runtime, get.tool).think()
    runtime.close()
    (bet,) = proxy.settled()
    assert bet["outcome"] == "failed"
    assert get.tool("A") == ["A2"]


def test_open_bets_are_booked_when_the_proxy_stops(endpoint, start, join, agent_of, get, way):
    proxy = start(guess("A"))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(asks_for("get", {"key": "A"}, after=get.ran["A"]))
    agent.think()
    proxy.stop()
    (bet,) = proxy.settled()
    assert bet["outcome"] in ("failed", "unclaimed")
    if way == "served":  # there is a way round it
        assert agent.client.chat.completions.create(model="m", messages=agent.messages, stream=True)


@pytest.mark.parametrize("seed", range(4))
def test_every_bet_of_a_random_day_has_one_outcome(endpoint, start, join, agent_of, get, seed):
    dice = random.Random(seed)
    offered: list[str] = []

    class Random:
        name = "random"

        async def speculate(self, turn, offer):
            for _ in range(dice.randrange(6)):
                key = dice.choice(["A", "B", "C", 7, None])
                name = dice.choice(["get", "get", "get", "unknown"])
                offered.append(name)
                offer(Prediction(ToolCall(name, {"key": key}), self.name, dice.random(), 0.99))

    @speculate(effect="write", writes={"things"})
    def put(key: str) -> str:
        return "ok"

    proxy = start(Random(), max_runs_per_turn=8)
    runtime = join(proxy, get.tool, put)
    makers = [agent_of(runtime, get.tool, put) for _ in range(3)]

    def reply(exchange, number):
        calls = []
        for index in range(dice.randrange(4)):
            name, key = dice.choice(["get", "get", "put"]), dice.choice("ABC")
            calls += call(name, {"key": key}, f"c{number}{index}", index)
        return [say("x"), dice.choice([0.0, 0.02]), *calls, *calls_end()]

    endpoint.script = reply

    def work(agent, agent_dice):
        for _ in range(8):
            if agent_dice.random() < 0.2:
                leave_after(runtime, agent, agent_dice.randrange(1, 8))
                continue
            calls = agent.think()
            for made in calls:
                if agent_dice.random() < 0.8:
                    agent.told(made, agent.tools[made.name](**made.arguments))
                else:
                    agent.told(made, "not allowed")

    threads = [threading.Thread(target=work, args=(a, random.Random(f"{seed}{i}"))) for i, a in enumerate(makers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    links = list(proxy.deps.runtimes._links.values())
    # an answer whose client has just left may still be on its way out
    eventually(lambda: [link.undecoded for link in links] == [0], what="else no read would be handed over any more")
    runtime.close()
    books = proxy.deps.desk.books
    eventually(lambda: not books._open, "no bet is open")
    eventually(lambda: len(proxy.bets()) == sum(books.counts.values()), "all are in the ledger")
    assert len({bet["id"] for bet in proxy.bets()}) == len(proxy.bets()) > 0
    assert set(proxy.outcomes) <= OUTCOMES
    assert {name: n for name, n in books.counts.items() if n} == proxy.outcomes
    served = [claim["bet"] for claim in proxy.claims() if claim["outcome"] in SERVED]
    assert len(served) == len(set(served)) == sum(n for name, n in proxy.outcomes.items() if name in SERVED)
    assert not books.faults


def test_a_turn_that_only_speaks_has_no_open_bets_left(endpoint, start, join, agent_of, get):
    proxy = start(guess("A", "B"))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(speaks())
    agent.think()
    assert [bet["outcome"] for bet in proxy.settled(2)] == ["miss", "miss"]
