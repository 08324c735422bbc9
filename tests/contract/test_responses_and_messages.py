"""The contract over `/v1/responses` and `/v1/messages`, streamed and not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentspec.calls import ToolCall
from tests.contract.api_agents import AGENTS, ApiAgent
from tests.contract.dialects import Item, Made, Text, Thought
from tests.contract.sandboxed import ran_ahead
from tests.contract.scripted import Gate, eventually
from tests.contract.shop import GUESS, SERVED
from tests.contract.support import Guesses

ADD = ToolCall("add", {"a": 1, "b": 2})
GET, CANCEL = Made("get_order", {"order_id": "A1"}, "c_get"), Made("cancel", {"order_id": "A1"}, "c_cancel")
SUM = Made("add", {"a": 1, "b": 2}, "c_sum")

APIS = ["responses", "messages"]
PROVIDERS: dict[str, list[dict[str, Any]]] = {
    "responses": [
        {"type": "web_search_call", "action": {"type": "search", "query": "x"}},
        {"type": "file_search_call", "queries": ["x"], "results": None},
        {"type": "code_interpreter_call", "code": "1+1", "container_id": "c", "outputs": []},
        {"type": "mcp_call", "name": "delete", "server_label": "s", "arguments": '{"a":1}', "output": "done"},
        {"type": "mcp_list_tools", "server_label": "s", "tools": []},
    ],
    "messages": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "delete", "server_name": "s", "input": {"a": 1}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": []},
    ],
}

Speaking = Callable[..., ApiAgent]


@pytest.fixture(params=[(api, stream) for api in APIS for stream in (True, False)], ids=lambda p: f"{p[0]}-{p[1]}")
def spoken(request: pytest.FixtureRequest) -> tuple[str, bool]:
    """The API, and whether its answers are streamed."""
    return request.param


@pytest.fixture
def made(start: Any, join: Any, shop: Any) -> Speaking:
    """made(api, stream): an agent of the shop whose read is guessed, and its proxy as `agent.proxy`."""

    def of(api: str, stream: bool, *guesses: ToolCall, **settings: Any) -> Any:
        proxy = start(Guesses(*guesses), **settings)
        tools = [shop.get_order, shop.add, shop.close_order, shop.send_mail, shop.launch]
        agent: Any = AGENTS[api](join(proxy, *tools).base_url, tools, stream=stream)
        agent.also("cancel", shop.cancel)
        agent.proxy = proxy
        return agent

    return of


@pytest.fixture
def agent(made: Speaking, spoken: tuple[str, bool]) -> Any:
    return made(*spoken, GUESS, ADD)


def served(agent: Any, count: int = 1) -> bool:
    return agent.proxy.claimed(count)[-1]["outcome"] in SERVED


def served_again(endpoint: Any, agent: Any, shop: Any) -> bool:
    """Whether another conversation of the process gets its read ahead of time."""
    other = type(agent)(agent.url, [shop.get_order], stream=agent.stream)
    ran = ran_ahead(agent.proxy)
    endpoint.script = lambda exchange, number: other.reply(exchange, number, [Text(), ran, GET])
    before = len(agent.proxy.claims())
    other.turn()
    return served(agent, before + 1)


def test_a_predicted_read_is_handed_over(endpoint: Any, agent: Any, shop: Any) -> None:
    agent.script(endpoint, [Thought(), Text(), shop.ran, shop.added, GET])
    assert agent.turn() == ["A1 open"]
    assert shop.runs == 2
    assert served(agent)
    agent.think()
    assert {b["tool"]: b["outcome"] in SERVED for b in agent.proxy.settled(2)} == {"get_order": True, "add": False}


def test_a_call_with_other_arguments_is_a_miss_and_runs_plainly(endpoint: Any, agent: Any, shop: Any) -> None:
    agent.script(endpoint, [Text(), shop.ran, Made("get_order", {"order_id": "B2"})])
    assert agent.turn() == ["B2 open"]
    assert agent.proxy.claimed()[0]["outcome"] == "miss"
    assert {b["outcome"] for b in agent.proxy.settled(2)} == {"miss"}


def test_an_answer_without_a_call_leaves_only_misses(endpoint: Any, agent: Any, shop: Any) -> None:
    agent.script(endpoint, [shop.ran, shop.added, Text("All is well.")])
    assert agent.turn() == []
    assert {b["outcome"] for b in agent.proxy.settled(2)} == {"miss"}


def test_cancel_then_get_in_one_turn_reads_after_the_cancel(endpoint: Any, agent: Any, shop: Any) -> None:
    agent.script(endpoint, [Text(), shop.ran, CANCEL, GET])
    assert agent.turn() == ["ok", "A1 cancelled"]


def test_get_then_cancel_in_one_turn_hands_over_nothing_read_ahead(endpoint: Any, agent: Any, shop: Any) -> None:
    agent.script(endpoint, [Text(), shop.ran, GET, CANCEL])
    get, _ = agent.think()
    shop.cancel("A1")
    assert agent.act([get]) == ["A1 cancelled"]
    assert [b["outcome"] for b in agent.proxy.settled(2) if b["tool"] == "get_order"] == ["stale"]


def test_a_pure_tool_is_served_beside_a_write(endpoint: Any, agent: Any, shop: Any) -> None:
    agent.script(endpoint, [Text(), shop.added, CANCEL, SUM])
    assert agent.turn() == ["ok", 3]
    assert served(agent)


@pytest.mark.parametrize("name", ["close_order", "launch"])
@pytest.mark.parametrize("api", APIS)
def test_a_declared_write_holds_reads_back_as_well(
    endpoint: Any, made: Speaking, shop: Any, api: str, name: str
) -> None:
    agent: Any = made(api, name == "launch", GUESS)
    agent.script(endpoint, [Text(), shop.ran, Made(name, {"order_id": "A1"}, "c_w"), GET])
    agent.think()
    assert [b["outcome"] for b in agent.proxy.settled(1) if b["tool"] == "get_order"] == ["stale"]


def test_reads_are_served_again_once_the_writes_result_is_in_a_request(endpoint: Any, agent: Any, shop: Any) -> None:
    agent.script(endpoint, [Text(), shop.ran, CANCEL], [Text("Cancelled.")])
    assert agent.turn() == ["ok"]
    other = type(agent)(agent.url, [shop.get_order], stream=agent.stream)
    endpoint.script = lambda exchange, number: other.reply(exchange, number, [Text(), GET])
    assert other.turn() == ["A1 cancelled"]
    assert agent.proxy.claimed(1)[-1]["outcome"] == "miss", "the model has not heard of the result yet"
    agent.script(endpoint)
    agent.think()
    assert served_again(endpoint, agent, shop)


def test_a_write_of_another_trajectory_voids_a_read_that_waits(endpoint: Any, agent: Any, shop: Any) -> None:
    agent.script(endpoint, [shop.ran, GET], [CANCEL])
    calls = agent.think()
    other = type(agent)(agent.url, [shop.get_order], stream=agent.stream)
    other.also("cancel", shop.cancel)
    assert other.turn() == ["ok"]
    assert agent.act(calls) == ["A1 cancelled"]


def test_what_the_provider_runs_holds_nothing_back(endpoint: Any, agent: Any, shop: Any) -> None:
    items = [Item(value) for value in PROVIDERS[agent.path]]
    agent.script(endpoint, [Thought(), *items, Text(), shop.ran, shop.added, GET])
    assert agent.turn() == ["A1 open"]
    assert shop.runs == 2
    assert served(agent)
    agent.script(endpoint)
    agent.think()
    eventually(lambda: [t["turns"] for t in agent.proxy._reader.trajectories()] == [2], "one trajectory")


@pytest.mark.parametrize("api", APIS)
def test_the_first_of_two_calls_starts_while_the_second_is_still_written(
    endpoint: Any, made: Speaking, shop: Any, api: str
) -> None:
    agent: Any = made(api, True)
    second = Made("get_order", {"order_id": "B2"}, "c_2")
    steps = list(agent.answers.streamed(0, [Text(), GET, second]))
    begun = next(i for i, step in enumerate(steps) if b"c_2" in step)
    endpoint.script = lambda exchange, number: [*steps[: begun + 1], shop.ran, *steps[begun + 1 :]]
    assert agent.turn() == ["A1 open", "B2 open"]
    assert shop.ran.is_open
    assert [b["predictor"] for b in agent.proxy.settled()] == ["eager"]
    assert agent.proxy.claimed(2)[0]["outcome"] in SERVED


@pytest.mark.parametrize("api", APIS)
def test_a_read_is_held_back_from_the_moment_a_writes_name_goes_out(
    endpoint: Any, made: Speaking, shop: Any, api: str
) -> None:
    """The write's arguments are not complete yet; another thread of the process claims the read."""
    agent: Any = made(api, True, GUESS)
    agent.script(endpoint, [Text(), shop.ran, GET])
    calls = agent.think()
    rest = Gate()
    steps = list(agent.answers.streamed(1, [Text(), CANCEL]))
    begun = next(i for i, step in enumerate(steps) if b"c_cancel" in step)
    endpoint.script = lambda exchange, number: [*steps[: begun + 1], rest, *steps[begun + 1 :]]
    type(agent)(agent.url, [shop.get_order]).until(b"c_cancel")
    assert {b["outcome"] for b in agent.proxy.settled(1)} == {"stale"}
    shop.state = "later"
    assert agent.act(calls) == ["A1 later"]
    rest.open()


# A client that leaves

LAST_OF_A_CALL = {"responses": b"response.function_call_arguments.done", "messages": b"content_block_stop"}


@pytest.mark.parametrize("api", APIS)
def test_a_client_that_closes_after_the_last_complete_call_keeps_its_bets(
    endpoint: Any, made: Speaking, shop: Any, api: str
) -> None:
    agent: Any = made(api, True, GUESS)
    steps = list(agent.answers.streamed(0, [GET]))
    last = next(i for i, step in enumerate(steps) if LAST_OF_A_CALL[api] in step)
    endpoint.script = lambda exchange, number: [*steps[:1], shop.ran, *steps[1 : last + 1], Gate()]
    agent.until(LAST_OF_A_CALL[api])
    eventually(lambda: endpoint.exchanges[0].cancelled.is_open)
    assert agent.tools["get_order"]("A1") == "A1 open"
    assert shop.runs == 1
    assert served(agent)
    agent.items += [] if api == "messages" else [agent.answers.item(GET, 0, 0)]
    agent.items += [{"role": "assistant", "content": [agent.answers.block(GET)]}] if api == "messages" else []
    agent.told((ToolCall("get_order", {}, GET.id), "A1 open"))
    agent.script(endpoint)
    agent.think()
    eventually(lambda: [t["turns"] for t in agent.proxy._reader.trajectories()] == [2], "it went on")


@pytest.mark.parametrize("api", APIS)
def test_a_client_that_closes_before_its_call_is_complete_loses_its_bets(
    endpoint: Any, made: Speaking, shop: Any, api: str
) -> None:
    agent: Any = made(api, True, GUESS)
    steps = list(agent.answers.streamed(0, [Text(), shop.ran, GET]))
    begun = next(i for i, step in enumerate(steps) if isinstance(step, bytes) and b"c_get" in step)
    endpoint.script = lambda exchange, number: [*steps[: begun + 1], Gate()]
    agent.until(b"c_get")
    assert [b["outcome"] for b in agent.proxy.settled()] == ["unclaimed"]
    assert agent.tools["get_order"]("A1") == "A1 open"
    assert shop.runs == 2


@pytest.mark.parametrize("api", APIS)
def test_a_write_that_the_client_did_not_wait_for_does_not_hold_reads_back(
    endpoint: Any, made: Speaking, shop: Any, api: str
) -> None:
    agent: Any = made(api, True, GUESS)
    steps = list(agent.answers.streamed(0, [Text(), shop.ran, CANCEL]))
    begun = next(i for i, step in enumerate(steps) if isinstance(step, bytes) and b"c_cancel" in step)
    endpoint.script = lambda exchange, number: [*steps[: begun + 1], Gate()]
    agent.until(b"c_cancel")
    eventually(lambda: endpoint.exchanges[0].cancelled.is_open)
    assert served_again(endpoint, agent, shop)
