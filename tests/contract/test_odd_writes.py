"""Writes are seen in whatever shape they are relayed, and after whatever came before them."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.contract.scripted import Reply, asks_for, call, calls_end, event, say
from tests.contract.shop import CANCEL, GET
from tests.contract.support import Agent


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
        [
            event({"role": "assistant", "function_call": {"name": "cancel", "arguments": "{}"}}),
            event({}, "function_call"),
        ],
    )
    calls = agent.think()
    other = Agent(agent.client, [shop.get_order], question="another conversation")
    other.think()
    shop.cancel("A1")
    assert agent.act(calls) == ["A1 cancelled"]


NESTED = '{"order_id": ' + "[" * 3000 + "]" * 3000 + "}"


@pytest.mark.parametrize("odd", [NESTED, '{"order_id": 1e999}', '{"order_id": "\\ud800"}', "{]", "[1]", "null", '"x"'])
def test_odd_arguments_before_a_write_do_not_hide_the_write(endpoint, agent, shop, odd):
    calls = [*call(*GET, id="c0"), 0.1, *call("get_order", odd, "c1", 1), *call(*CANCEL, "c2", 2)]
    endpoint.answers([say("x"), shop.ran, *calls, *calls_end()])
    with agent.client.chat.completions.with_streaming_response.create(
        model="m", messages=agent.messages, tools=agent.schemas, stream=True
    ) as answer:
        answer.read()
    shop.cancel("A1")
    assert shop.get_order("A1") == "A1 cancelled"
    assert next(b["outcome"] for b in agent.proxy.settled(2) if b["tool"] == "get_order") == "stale"


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
