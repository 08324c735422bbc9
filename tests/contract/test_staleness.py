"""No stale result is handed over: writes in this process, relayed calls to tools that may write, and age."""

from __future__ import annotations

import json
import threading
import time

import httpx
import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.support import (
    Gate,
    Guesses,
    Reply,
    asks_for,
    call,
    calls_end,
    event,
    eventually,
    say,
    undeclared,
)

GUESS = ToolCall("get_order", {"order_id": "A1"})
SERVED = ("hit", "joined")


class Shop:
    """A piece of state, a read of it, and writes."""

    def __init__(self, stable_for: float = 30.0) -> None:
        self.state = "open"
        self.runs = 0
        self.ran, self.added = Gate(), Gate()
        self.writing, self.may_end = Gate(), Gate()
        self.may_end.open()

        @speculate(effect="read", reads={"orders"}, stable_for=stable_for)
        def get_order(order_id: str) -> str:
            self.runs += 1
            seen = f"{order_id} {self.state}"
            self.ran.open()
            return seen

        @speculate(effect="pure")
        def add(a: int, b: int) -> int:
            self.runs += 1
            self.added.open()
            return a + b

        @speculate(effect="write", writes={"orders"})
        def close_order(order_id: str) -> str:
            self.writing.open()
            self.may_end.wait()
            self.state = "closed"
            return "ok"

        @speculate(effect="write", writes={"mail"})
        def send_mail(order_id: str) -> str:
            return "sent"

        @speculate(effect="irreversible")
        def launch(order_id: str) -> str:
            self.state = "gone"
            return "launched"

        self.get_order, self.add = get_order, add
        self.close_order, self.send_mail, self.launch = close_order, send_mail, launch

    def cancel(self, order_id: str) -> str:
        """A write that nobody declared."""
        self.state = "cancelled"
        return "ok"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def agent(endpoint, start, join, agent_of, shop):
    """An agent of the shop whose first two calls are guessed, and its proxy as `agent.proxy`."""
    proxy = start(Guesses(GUESS, ToolCall("add", {"a": 1, "b": 2})))
    tools = [shop.get_order, shop.add, shop.close_order, shop.send_mail, shop.launch]
    found = agent_of(join(proxy, *tools), *tools)
    found.proxy = proxy
    undeclared(found, "cancel", shop.cancel)
    return found


def test_a_write_between_run_and_call_makes_the_result_stale(endpoint, agent, shop):
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    shop.close_order("A1")
    assert agent.act(calls) == ["A1 closed"]
    assert {"get_order": "stale"} == {b["tool"]: b["outcome"] for b in agent.proxy.settled(2) if b["tool"] != "add"}


def test_a_write_that_names_no_domain_makes_every_read_stale(endpoint, agent, shop):
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    shop.launch("A1")
    assert agent.act(calls) == ["A1 gone"]


def test_a_write_in_another_domain_changes_nothing(endpoint, agent, shop):
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    eventually(lambda: shop.runs == 2)
    shop.send_mail("A1")
    assert agent.act(calls) == ["A1 open"]
    assert shop.runs == 2
    assert next(c for c in agent.proxy.claimed(2) if c["tool"] == "get_order")["outcome"] in SERVED


def test_a_write_that_still_runs_blocks_the_read(endpoint, agent, shop):
    shop.may_end = Gate()
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.writing))
    writer = threading.Thread(target=shop.close_order, args=("A1",))
    writer.start()
    shop.writing.wait()
    assert agent.turn() == ["A1 open"]  # as it would be without us: the write has not happened yet
    assert [b["outcome"] for b in agent.proxy.settled(2) if b["tool"] == "get_order"][0] in ("vetoed", "stale", "miss")
    shop.may_end.open()
    writer.join()


def test_a_read_that_began_during_a_write_is_not_served_after_it(endpoint, agent, shop):
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    shop.may_end = Gate()
    calls = agent.think()
    writer = threading.Thread(target=shop.close_order, args=("A1",))
    writer.start()
    shop.writing.wait()
    shop.may_end.open()
    writer.join()
    assert agent.act(calls) == ["A1 closed"]


def test_a_write_that_raises_has_written_all_the_same(endpoint, start, join, agent_of, shop):
    @speculate(effect="write", writes={"orders"})
    def half_write(order_id: str) -> None:
        shop.state = "half"
        raise ConnectionError("lost")

    proxy = start(Guesses(GUESS))
    agent = agent_of(join(proxy, shop.get_order, half_write), shop.get_order, half_write)
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    with pytest.raises(ConnectionError):
        half_write("A1")
    assert agent.act(calls) == ["A1 half"]


def test_a_result_older_than_stable_for_is_not_served(endpoint, start, join, agent_of):
    shop = Shop(stable_for=0.3)
    proxy = start(Guesses(GUESS))
    agent = agent_of(join(proxy, shop.get_order), shop.get_order)
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    shop.state = "changed behind our back"
    time.sleep(0.35)  # age itself is what is tested
    assert agent.act(calls) == ["A1 changed behind our back"]
    (bet,) = proxy.settled()
    assert bet["outcome"] == "stale"


def both(first: tuple, second: tuple, after: Gate) -> list:
    """One answer with two parallel calls, `(name, arguments)` each."""
    one, two = (call(n, a, f"call_{i}", i) for i, (n, a) in enumerate((first, second)))
    return [say("x"), after, *one, *two, *calls_end()]


CANCEL, GET = ("cancel", {"order_id": "A1"}), ("get_order", GUESS.arguments)


def test_cancel_then_get_in_one_turn_reads_after_the_cancel(endpoint, agent, shop):
    endpoint.answers(both(CANCEL, GET, shop.ran))
    assert agent.turn() == ["ok", "A1 cancelled"]


def test_get_then_cancel_in_one_turn_hands_over_nothing_read_ahead(endpoint, agent, shop):
    """The agent may run the two in any order, or side by side."""
    endpoint.answers(both(GET, CANCEL, shop.ran))
    get, cancel = agent.think()
    shop.cancel("A1")
    assert agent.act([get]) == ["A1 cancelled"]
    assert [b["outcome"] for b in agent.proxy.settled(2) if b["tool"] == "get_order"] == ["stale"]


@pytest.mark.parametrize("name", ["close_order", "launch", "send_mail"])
def test_a_relayed_call_of_a_declared_write_holds_reads_back_as_well(endpoint, agent, shop, name):
    endpoint.answers(both((name, {"order_id": "A1"}), GET, shop.ran))
    agent.think()
    assert "get_order" not in {c["tool"] for c in agent.proxy.claims() if c["outcome"] in SERVED}
    assert [b["outcome"] for b in agent.proxy.settled(2) if b["tool"] == "get_order"] == ["stale"]


def test_a_pure_tool_is_served_beside_a_write(endpoint, agent, shop):
    endpoint.answers(both(CANCEL, ("add", {"a": 1, "b": 2}), shop.added))
    assert agent.turn() == ["ok", 3]
    assert agent.proxy.claimed()[0]["outcome"] in SERVED


def test_reads_are_served_again_once_the_writes_result_is_in_a_request(endpoint, agent, shop):
    endpoint.answers(asks_for(*CANCEL, id="c0"), asks_for(*GET, after=shop.ran, id="c1"), [event({}, "stop")])
    assert agent.turn() == ["ok"]
    shop.ran = Gate()
    endpoint.script = lambda exchange, number: asks_for(*GET, after=shop.ran, id="c1")
    assert agent.turn() == ["A1 cancelled"]
    assert agent.proxy.claimed()[-1]["outcome"] in SERVED


def test_reads_stay_back_while_another_trajectory_writes(endpoint, agent, shop, agent_of, client_of):
    """Two conversations in one process: the other one's cancel has been relayed, its result has not been told."""
    endpoint.answers(asks_for(*CANCEL), [say("x"), 0.2, *call(*GET), *calls_end()])
    other = type(agent)(agent.client, [shop.get_order], question="another conversation")
    undeclared(other, "cancel", shop.cancel)
    other.think()
    calls = agent.think()
    shop.cancel("A1")
    assert agent.act(calls) == ["A1 cancelled"]
    assert "get_order" not in {c["tool"] for c in agent.proxy.claimed() if c["outcome"] in SERVED}


def test_a_write_of_another_trajectory_voids_a_read_that_waits_for_its_claim(endpoint, agent, shop):
    endpoint.answers(asks_for(*GET, after=shop.ran), asks_for(*CANCEL))
    calls = agent.think()
    other = type(agent)(agent.client, [shop.get_order], question="another conversation")
    undeclared(other, "cancel", shop.cancel)
    assert other.turn() == ["ok"]
    assert agent.act(calls) == ["A1 cancelled"]


def custom_call(name: str, index: int) -> bytes:
    """A free-text tool call of the Chat Completions API."""
    part = {"index": index, "id": f"call_{index}", "type": "custom", "custom": {"name": name, "input": "rm"}}
    return event({"tool_calls": [part]})


def test_a_custom_tool_call_is_a_write_too(endpoint, agent, shop):
    endpoint.answers([say("x"), shop.ran, *call(*GET), custom_call("shell", 1), *calls_end()])
    get = agent.think()[0]
    shop.cancel("A1")
    assert agent.act([get]) == ["A1 cancelled"]


def test_a_legacy_function_call_is_a_write_too(endpoint, agent, shop):
    endpoint.answers(
        asks_for(*GET, after=shop.ran),
        [event({"role": "assistant", "function_call": {"name": "cancel", "arguments": "{}"}}), event({}, "function_call")],
    )
    calls = agent.think()
    other = type(agent)(agent.client, [shop.get_order], question="another conversation")
    other.think()
    shop.cancel("A1")
    assert agent.act(calls) == ["A1 cancelled"]


NESTED = '{"order_id": ' + "[" * 3000 + "]" * 3000 + "}"


@pytest.mark.parametrize("odd", [NESTED, '{"order_id": 1e999}', '{"order_id": "\\ud800"}', "{]", "[1]", "null", '"x"'])
def test_odd_arguments_before_a_write_do_not_hide_the_write(endpoint, agent, shop, odd):
    endpoint.answers([
        say("x"), shop.ran, *call(*GET, id="c0"), 0.1, *call("get_order", odd, "c1", 1), *call(*CANCEL, "c2", 2), *calls_end()
    ])  # fmt: skip
    with agent.client.chat.completions.with_streaming_response.create(
        model="m", messages=agent.messages, tools=agent.schemas, stream=True
    ) as answer:
        answer.read()
    shop.cancel("A1")
    assert shop.get_order("A1") == "A1 cancelled"
    assert [b["outcome"] for b in agent.proxy.settled(2) if b["tool"] == "get_order"][0] == "stale"


DEEP = [{"role": "assistant", "tool_calls": [
    {"id": "c", "type": "function", "function": {"name": "get_order", "arguments": NESTED}}]}]  # fmt: skip
QUESTION = [{"role": "user", "content": "q"}]
ODD_REQUESTS = {
    "no model": {"messages": QUESTION},
    "deep history": {"model": "m", "messages": [*QUESTION, *DEEP]},
    "content is an object": {"model": "m", "messages": [{"role": "user", "content": {"x": 1}}]},
    "no messages": {"model": "m", "messages": []},
    "tools are an object": {"model": "m", "messages": QUESTION, "tools": {}},
    "two choices": {"model": "m", "messages": QUESTION, "n": 2},
}


@pytest.mark.parametrize("odd", ODD_REQUESTS)
def test_a_write_in_a_turn_of_an_odd_request_is_seen_all_the_same(endpoint, agent, shop, odd):
    written = call(*CANCEL)
    if odd == "two choices":
        written = [chunk.replace(b'"index": 0, "delta"', b'"index": 1, "delta"') for chunk in written]
    endpoint.answers(asks_for(*GET, after=shop.ran), [*written, *calls_end()])
    calls = agent.think()
    body = ODD_REQUESTS[odd] | {"stream": True}
    httpx.post(f"{agent.client.base_url}chat/completions", json=body, headers={"authorization": "Bearer k"})
    shop.cancel("A1")
    assert agent.act(calls) == ["A1 cancelled"]


def test_a_write_in_an_answer_that_is_not_streamed_is_seen(endpoint, agent, shop):
    endpoint.answers(asks_for(*GET, after=shop.ran))
    calls = agent.think()
    made = [{"id": "c9", "type": "function", "function": {"name": "cancel", "arguments": '{"order_id":"A1"}'}}]
    message = {"role": "assistant", "content": None, "tool_calls": made}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [
        {"index": 0, "message": message, "finish_reason": "tool_calls"}]}  # fmt: skip
    raw = json.dumps(body).encode()
    endpoint.script = lambda exchange, number: Reply([raw], 200, [(b"content-type", b"application/json")])
    agent.client.chat.completions.create(model="m", messages=[{"role": "user", "content": "other"}])
    shop.cancel("A1")
    assert agent.act(calls) == ["A1 cancelled"]
