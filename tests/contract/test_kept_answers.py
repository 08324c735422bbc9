"""Answers and conversations that the endpoint keeps: background, branches, requests at once, other tenants."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.contract.api_agents import MessagesAgent, ResponsesAgent
from tests.contract.dialects import JSON, Made, Text
from tests.contract.scripted import Gate, Reply, eventually
from tests.contract.support import Guesses
from tests.contract.turns import SERVED, Get, next_key, trajectories, windows

WAYS = ["previous", "conversation", "thread"]


@pytest.fixture
def get() -> Get:
    return Get()


@pytest.fixture
def talk(endpoint: Any, start: Any, join: Any, get: Get) -> Any:
    """talk(way): an agent whose history the endpoint keeps."""

    def of(way: str, **more: Any) -> Any:
        proxy = start(Guesses(next_key))
        url = join(proxy, get.tool).base_url
        agent: Any
        if way == "thread":
            agent = MessagesAgent(url, [get.tool], thread=True, **more)
        else:
            agent = ResponsesAgent(url, [get.tool], way=way, **more)
        agent.proxy = proxy
        agent.script(endpoint, *(get.asked(number) for number in range(4)))
        return agent

    return of


def another(agent: Any, name: str, get: Get, **more: Any) -> Any:
    """The same agent once more, after what has been said so far."""
    extra = {"thread": True} if isinstance(agent, MessagesAgent) else {"way": agent.way}
    made = type(agent)(agent.url, [get.tool], **extra, **more)
    made.items, made.last, made.fresh = list(agent.items), agent.last, agent.fresh
    made.items.append({"role": "user", "content": name})
    made.proxy = agent.proxy
    return made


# Background


BACKGROUND = {"background": True, "store": True}


def queued(agent: Any) -> Any:
    return lambda exchange, number: agent.answers.whole(number, [], "queued")


def test_a_background_answer_holds_reads_back_until_the_trajectory_goes_on(endpoint: Any, talk: Any, get: Get) -> None:
    """Its calls come with the answer to another request, which is not read."""
    agent = talk("previous", stream=False, **BACKGROUND)
    endpoint.script = queued(agent)
    assert agent.think() == []
    assert windows(agent.proxy) == 1
    other = ResponsesAgent(agent.url, [get.tool])
    endpoint.script = lambda exchange, number: other.reply(exchange, number, [Text(), Made("get", {"key": "k0"}, "c")])
    assert other.turn() == ["k0!"]
    assert agent.proxy.claimed()[-1]["outcome"] == "miss"
    agent.items.append({"type": "function_call_output", "call_id": "c_w", "output": "ok"})
    agent.more = {}
    agent.script(endpoint)
    agent.think()
    assert windows(agent.proxy) == 0


def test_what_ran_ahead_is_not_served_once_a_background_answer_is_on_its_way(
    endpoint: Any, talk: Any, get: Get
) -> None:
    agent = talk("items")
    agent.script(endpoint, get.asked(0))
    calls = agent.think()
    other = ResponsesAgent(agent.url, [get.tool], stream=False, **BACKGROUND)
    endpoint.script = queued(other)
    other.think()
    assert agent.act(calls) == ["k0!"]
    assert agent.proxy.claimed()[-1]["outcome"] == "miss"


def test_a_background_answer_that_is_written_back_in_full_is_gone_on_from(endpoint: Any, talk: Any, get: Get) -> None:
    """The client polled it, made its calls, and sends all items."""
    agent = talk("items", stream=False, **BACKGROUND)
    endpoint.script = queued(agent)
    agent.think()
    write = Made("cancel", {}, "c_w")
    agent.items += [agent.answers.item(write, 0, 0)]
    agent.items += [{"type": "function_call_output", "call_id": "c_w", "output": "ok"}]
    agent.more = {}
    agent.script(endpoint)
    agent.think()
    assert windows(agent.proxy) == 0
    trajectories(agent.proxy, 2)


def test_a_background_answer_that_is_streamed_is_one_trajectory_with_what_follows(
    endpoint: Any, talk: Any, get: Get
) -> None:
    agent = talk("previous", **BACKGROUND)
    agent.script(endpoint, [Made("get", {"key": "k0"}, "c_0")], get.asked(1))
    assert agent.turn() == ["k0!"]
    agent.more = {}
    assert agent.turn() == ["k1!"]
    trajectories(agent.proxy, 2)
    assert agent.proxy.claimed(2)[-1]["outcome"] in SERVED


# Branches, and requests at once


@pytest.mark.parametrize("way", ["previous", "thread"])
def test_two_branches_of_one_answer_are_two_trajectories_that_each_get_their_read(
    endpoint: Any, talk: Any, get: Get, way: str
) -> None:
    agent = talk(way)
    assert agent.turn() == ["k0!"]
    left, right = another(agent, "left", get), another(agent, "right", get)
    endpoint.script = lambda exchange, number: left.reply(exchange, number, get.asked(1))
    lefts = left.think()
    rights = right.think()
    assert left.act(lefts) == ["k1!"]
    assert right.act(rights) == ["k1!"]
    trajectories(agent.proxy, 1, 2)


@pytest.mark.parametrize("way", ["previous", "thread"])
def test_a_request_that_names_an_answer_still_on_its_way_places_no_bets(
    endpoint: Any, talk: Any, get: Get, way: str
) -> None:
    agent, rest = talk(way), Gate()
    steps = list(agent.answers.streamed(0, [Text()]))
    endpoint.script = lambda exchange, number: (
        [*steps[:1], rest, *steps[1:]] if number == 0 else agent.answers.streamed(number, [Text()])
    )
    first = threading.Thread(target=agent.think)
    first.start()
    eventually(lambda: endpoint.exchanges and endpoint.exchanges[0].sent)
    early = another(agent, "and?", get)
    early.last = "msg_0" if way == "thread" else "resp_0"
    early.think()
    rest.open()
    first.join()
    assert len(agent.proxy.settled()) == 1, "that of the first"


def test_two_requests_at_once_in_one_conversation_place_no_bets(endpoint: Any, talk: Any, get: Get) -> None:
    agent, rest = talk("conversation"), Gate()
    steps = list(agent.answers.streamed(0, [Text()]))
    endpoint.script = lambda exchange, number: (
        [*steps[:1], rest, *steps[1:]] if number == 0 else agent.answers.streamed(number, [Text()])
    )
    first = threading.Thread(target=agent.think)
    first.start()
    eventually(lambda: endpoint.exchanges and endpoint.exchanges[0].sent)
    other = another(agent, "and?", get)
    other.think()
    assert len(other.proxy.deps.desk.books._open) == 1, "that of the first"
    rest.open()
    first.join()
    assert len(agent.proxy.settled()) == 1


LOCKED = Reply([b'{"error":{"code":"conversation_locked","message":"busy"}}'], 409, JSON)


def test_a_request_that_a_busy_conversation_refuses_does_not_hide_what_was_said_before(
    endpoint: Any, talk: Any, get: Get
) -> None:
    agent = talk("conversation")
    agent.script(endpoint, [Made("cancel", {}, "c_w")])
    (write,) = agent.think()
    endpoint.script = lambda exchange, number: LOCKED
    assert another(agent, "and?", get).post().status_code == 409
    agent.told((write, "ok"))
    agent.script(endpoint)
    agent.think()
    assert windows(agent.proxy) == 0, "the write's result is in a request of its conversation"


@pytest.mark.parametrize("way", WAYS)
def test_a_request_that_the_endpoint_refused_is_sent_again_by_the_sdk(
    endpoint: Any, talk: Any, get: Get, way: str
) -> None:
    agent = talk(way)
    assert agent.turn() == ["k0!"]
    endpoint.script = lambda exchange, number: Reply([b"{}"], 500, JSON)
    assert agent.post().status_code == 500
    agent.headers["x-stainless-retry-count"] = "1"
    endpoint.script = lambda exchange, number: agent.reply(exchange, number, [Made("get", {"key": "k1"}, "c_1")])
    assert agent.turn() == ["k1!"]
    del agent.headers["x-stainless-retry-count"]
    agent.script(endpoint)
    agent.think()
    trajectories(agent.proxy, 4)


def test_a_failed_answer_is_nothing_to_go_on_from(endpoint: Any, talk: Any, get: Get) -> None:
    """`response.failed`: a request that names it places no bets."""
    agent = talk("previous")
    failed = {"id": "resp_0", "status": "failed", "output": [], "error": {"code": "server_error", "message": "x"}}
    steps = list(agent.answers.streamed(0, []))
    event = agent.answers._event({"type": "response.failed", "response": failed})
    endpoint.script = lambda exchange, number: [steps[0], event] if number == 0 else agent.answers.streamed(number, [])
    agent.think()
    assert len(agent.proxy.settled()) == 1
    agent.items.append({"role": "user", "content": "again"})
    agent.think()
    trajectories(agent.proxy, 1, 1)
    assert len(agent.proxy.bets()) == 1


FAILURES = {
    "previous": {"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "output": []}},
    "thread": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
}


@pytest.mark.parametrize("way", FAILURES)
def test_half_a_write_in_an_answer_that_failed_holds_nothing_back(endpoint: Any, talk: Any, get: Get, way: str) -> None:
    agent = talk(way)
    steps = list(agent.answers.streamed(1, [Made("cancel", {"order_id": "A1"}, "c_w")]))
    half = next(i for i, step in enumerate(steps) if b"delta" in step and b"order" in step)
    endpoint.script = lambda exchange, number: [*steps[: half + 1], agent.answers._event(FAILURES[way])]
    assert agent.post().status_code == 200
    eventually(lambda: len(agent.proxy._reader.trajectories()) == 1)
    assert windows(agent.proxy) == 0


# Other tenants


@pytest.mark.parametrize("way", WAYS)
def test_another_tenants_answer_is_not_known(endpoint: Any, talk: Any, get: Get, way: str) -> None:
    agent = talk(way)
    assert agent.turn() == ["k0!"]
    stranger = another(agent, "what was said?", get, key="other")
    stranger.script(endpoint)
    stranger.think()
    trajectories(agent.proxy, 1, 1)
    guessed = [bet["arguments"] for bet in agent.proxy.settled(1 if way == "thread" else 2)]
    assert set(guessed) == {'{"key":"k0"}'}, "nothing of the other's history was known"


@pytest.mark.parametrize("way", ["previous", "conversation"])
def test_a_name_that_was_never_heard_begins_a_trajectory(endpoint: Any, talk: Any, get: Get, way: str) -> None:
    agent = talk(way)
    agent.last = "elsewhere"
    agent.script(endpoint, get.asked(0), get.asked(1))
    assert agent.turn() == ["k0!"]
    assert agent.turn() == ["k1!"]
    trajectories(agent.proxy, 2)
    assert agent.proxy.claimed(2)[-1]["outcome"] in SERVED
