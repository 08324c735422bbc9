"""A relayed call of a tool that may write holds reads back until its result is in a request."""

from __future__ import annotations

import copy
import json
from contextlib import contextmanager

import pytest

from agentspec.proxy import reading
from agentspec.proxy.answer_decoder import AnswerDecoder
from tests.contract.sandboxed import ran_ahead
from tests.contract.scripted import DONE, Gate, asks_for, call, calls_end, event, eventually, say
from tests.contract.shop import CANCEL, GET, GUESS, SERVED, both
from tests.contract.support import BOTH_WAYS, Agent, Guesses, assistant, plain_client, undeclared

pytestmark = BOTH_WAYS


def test_cancel_then_get_in_one_turn_reads_after_the_cancel(endpoint, agent, shop):
    endpoint.answers(both(CANCEL, GET, shop.ran))
    assert agent.turn() == ["ok", "A1 cancelled"]


def test_get_then_cancel_in_one_turn_hands_over_nothing_read_ahead(endpoint, agent, shop):
    """The agent may run the two in any order, or side by side."""
    endpoint.answers(both(GET, CANCEL, shop.ran))
    get, _ = agent.think()
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
    ran = ran_ahead(agent.proxy)
    endpoint.script = lambda exchange, number: asks_for(*GET, after=ran, id="c1")
    assert agent.turn() == ["A1 cancelled"]
    assert agent.proxy.claimed()[-1]["outcome"] in SERVED


def test_reads_stay_back_while_another_trajectory_writes(endpoint, agent, shop, agent_of, client_of):
    """Two conversations in one process: the other one's cancel has been relayed, its result has not been told."""
    endpoint.answers(asks_for(*CANCEL), [say("x"), 0.2, *call(*GET), *calls_end()])
    other = Agent(agent.client, [shop.get_order], question="another conversation")
    undeclared(other, "cancel", shop.cancel)
    other.think()
    calls = agent.think()
    shop.cancel("A1")
    assert agent.act(calls) == ["A1 cancelled"]
    assert "get_order" not in {c["tool"] for c in agent.proxy.claimed() if c["outcome"] in SERVED}


def test_a_write_of_another_trajectory_voids_a_read_that_waits_for_its_claim(endpoint, agent, shop):
    endpoint.answers(asks_for(*GET, after=shop.ran), asks_for(*CANCEL))
    calls = agent.think()
    other = Agent(agent.client, [shop.get_order], question="another conversation")
    undeclared(other, "cancel", shop.cancel)
    assert other.turn() == ["ok"]
    assert agent.act(calls) == ["A1 cancelled"]


@pytest.fixture
def read_when_asked(monkeypatch):
    """No chunk shows a call, and the next round is far away: what went out is read for those alone who have to know."""
    monkeypatch.setattr(AnswerDecoder, "may_show_call", lambda decoder, chunk: False)
    monkeypatch.setattr(reading, "ROUND_S", 60.0)


@contextmanager
def all_but_the_end(agent, messages):
    """An answer of which its agent has all that it will act on; the connection is still open."""
    body = {"model": "m", "messages": messages, "tools": agent.schemas, "stream": True}
    url, headers = f"{agent.runtime.base_url}/chat/completions", {"authorization": "Bearer k"}
    with plain_client(agent.runtime) as client, client.stream("POST", url, json=body, headers=headers) as answer:
        seen, chunks = b"", answer.iter_raw()
        while FINISH not in seen:
            seen += next(chunks)
        yield


FINISH = event({}, "tool_calls")


@pytest.mark.usefixtures("read_when_asked")
def test_a_write_that_went_out_unread_holds_reads_back(endpoint, agent, shop):
    held = Gate()
    cancels = [say("x"), 0.2, *call(*CANCEL), FINISH, held, DONE]
    endpoint.answers(asks_for(*GET, after=shop.ran), cancels)
    calls = agent.think()
    with all_but_the_end(agent, [{"role": "user", "content": "another conversation"}]):
        shop.cancel("A1")
        assert agent.act(calls) == ["A1 cancelled"]
        assert "get_order" not in {c["tool"] for c in agent.proxy.claimed() if c["outcome"] in SERVED}
        held.open()


@pytest.mark.usefixtures("read_when_asked")
def test_a_request_that_goes_on_from_an_unread_answer_is_of_its_trajectory(endpoint, agent, shop):
    held = Gate()
    cancels = [say("x"), 0.2, *call(*CANCEL, id="c0"), FINISH, held, DONE]
    endpoint.answers(cancels, [event({}, "stop"), DONE])
    with all_but_the_end(agent, agent.messages):
        made = {"id": "c0", "name": CANCEL[0], "arguments": json.dumps(CANCEL[1])}
        agent.messages += [assistant("x", [made]), {"role": "tool", "tool_call_id": "c0", "content": "ok"}]
        agent.think()
        held.open()
    assert served_again(endpoint, agent, shop)  # the result has closed the write's window


def served_again(endpoint, agent, shop) -> bool:
    """Whether another conversation of the process gets its read ahead of time."""
    ran = ran_ahead(agent.proxy)
    endpoint.script = lambda exchange, number: asks_for(*GET, after=ran, id="again")
    Agent(agent.client, [shop.get_order], question="another conversation").turn()
    return agent.proxy.claimed()[-1]["outcome"] in SERVED


def test_a_write_that_the_client_did_not_wait_for_does_not_hold_reads_back(endpoint, agent, shop):
    """The connection was closed in the middle of the call: nobody can make it."""
    endpoint.answers([say("x"), *call(*CANCEL)[:2], Gate()])
    body = {"model": "m", "messages": agent.messages, "tools": agent.schemas, "stream": True}
    headers = {"authorization": "Bearer k"}
    url = f"{agent.runtime.base_url}/chat/completions"
    with plain_client(agent.runtime) as client, client.stream("POST", url, json=body, headers=headers) as answer:
        seen = b""
        for chunk in answer.iter_raw():
            seen += chunk
            if b"cancel" in seen:
                break
    eventually(lambda: endpoint.exchanges[0].cancelled.is_open)
    assert served_again(endpoint, agent, shop)


def test_a_write_in_an_answer_that_was_asked_for_again_meanwhile_holds_nothing_back(endpoint, agent, shop):
    """The first answer goes on after its retry: whoever still reads it, the agent does not act on it."""
    held = Gate()
    endpoint.answers([say("x"), held, *call(*CANCEL), *calls_end()], [event({}, "stop")])
    body = {"model": "m", "messages": agent.messages, "tools": agent.schemas, "stream": True}
    headers = {"authorization": "Bearer k"}
    url = f"{agent.runtime.base_url}/chat/completions"
    with plain_client(agent.runtime) as client, client.stream("POST", url, json=body, headers=headers) as first:
        chunks = first.iter_raw()
        next(chunks)
        agent.headers = {"x-stainless-retry-count": "1"}
        agent.think()
        agent.headers = {}
        held.open()
        assert b"cancel" in b"".join(chunks)
    assert served_again(endpoint, agent, shop)


def test_a_write_that_a_retry_asks_for_anew_does_not_hold_reads_back_for_ever(endpoint, agent, shop):
    """The client gave the first answer up, asked again, and told the result of the second answer's call."""
    endpoint.answers(asks_for(*CANCEL, id="c0"), asks_for(*CANCEL, id="c1"), [event({}, "stop")])
    messages = copy.deepcopy(agent.messages)
    agent.think()
    agent.messages, agent.headers = messages, {"x-stainless-retry-count": "1"}
    agent.turn()
    agent.headers = {}
    agent.think()
    assert served_again(endpoint, agent, shop)


def test_a_tool_that_the_operator_knows_to_change_nothing_holds_nothing_back(endpoint, start, join, agent_of, shop):
    proxy = start(Guesses(GUESS), harmless_tools=("final_answer",))
    agent = agent_of(join(proxy, shop.get_order), shop.get_order)
    undeclared(agent, "final_answer", lambda text: text)
    endpoint.answers(both(("final_answer", {"text": "done"}), GET, shop.ran))
    assert agent.turn() == ["done", "A1 open"]
    assert proxy.claimed()[0]["outcome"] in SERVED
