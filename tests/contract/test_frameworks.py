"""Real frameworks over the proxy: their tools run ahead, their users are kept apart, nothing else changes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

import openai
import pytest
from agents import Agent as OpenAIAgent
from agents import OpenAIChatCompletionsModel, RunConfig, RunContextWrapper, Runner, function_tool
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.scripted import Gate, asks_for, eventually, speaks
from tests.contract.support import Guesses

SERVED = ("hit", "joined")


class Orders:
    """Tools in all the shapes that frameworks take, and their runs."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.ran: list[Gate] = [Gate() for _ in range(9)]

        @speculate(effect="read", reads={"orders"}, stable_for=30.0)
        def get_order(order_id: str, verbose: bool = False) -> str:
            """Look an order up."""
            return self.note(order_id)

        @speculate(effect="read", reads={"orders"}, stable_for=30.0)
        async def get_order_async(order_id: str) -> str:
            """Look an order up."""
            return self.note(order_id)

        @speculate(effect="read", reads={"orders"}, stable_for=30.0)
        def my_orders(wrapper: RunContextWrapper[Login]) -> str:
            """All orders of the user."""
            return self.note(wrapper.context.name)

        self.get_order, self.get_order_async, self.my_orders = get_order, get_order_async, my_orders

    def note(self, what: Any) -> str:
        self.runs.append(what)
        self.ran[len(self.runs) - 1].open()
        return f"order {what} is shipped"


@dataclass
class Login:
    name: str


@pytest.fixture
def orders() -> Orders:
    return Orders()


def turns(name: str, arguments: Any, *gates: Gate | None):
    """The model calls the tool once for each gate, after it, and then speaks."""

    def answer(exchange, number):
        told = sum(message["role"] == "tool" for message in exchange.body["messages"])
        asks = told < len(gates)
        return asks_for(name, arguments, after=gates[told], id=f"call_{number}") if asks else speaks("Shipped.")

    return answer


# openai-agents


def run_openai_agent(runtime, tools, context: Any = None, question: str = "where is A1?") -> str:
    async def main() -> str:
        client = openai.AsyncOpenAI(
            base_url=runtime.base_url, api_key="k", http_client=runtime.async_http_client(), max_retries=0
        )
        async with client:
            model = OpenAIChatCompletionsModel(model="m", openai_client=client)
            agent: Any = OpenAIAgent(name="shop", instructions="help", tools=tools, model=model)
            config = RunConfig(tracing_disabled=True)
            result = Runner.run_streamed(agent, question, context=context, run_config=config, max_turns=6)
            async for _ in result.stream_events():
                pass
            return str(result.final_output)

    return asyncio.run(main())


def test_a_tool_of_openai_agents_runs_ahead(endpoint, start, join, orders):
    proxy = start(Guesses(ToolCall("get_order", {"order_id": "A1"}), calibrated=True))
    runtime = join(proxy, orders.get_order)
    endpoint.script = turns("get_order", {"order_id": "A1", "verbose": False}, orders.ran[0], orders.ran[1])
    assert run_openai_agent(runtime, [function_tool(orders.get_order)]) == "Shipped."
    assert [claim["outcome"] in SERVED for claim in proxy.claimed(2)] == [True, True]
    tool_results = [m["content"] for m in endpoint.exchanges[-1].body["messages"] if m["role"] == "tool"]
    assert tool_results == ["order A1 is shipped"] * 2


def test_an_async_tool_of_openai_agents_runs_ahead_from_its_second_call(endpoint, start, join, orders):
    proxy = start(
        Guesses(
            lambda t: [ToolCall("get_order_async", {"order_id": "A1"})] if len(t.history) == 4 else [], calibrated=True
        )
    )
    runtime = join(proxy, orders.get_order_async)
    endpoint.script = turns("get_order_async", {"order_id": "A1"}, None, orders.ran[1])
    assert run_openai_agent(runtime, [function_tool(orders.get_order_async)]) == "Shipped."
    assert [claim["outcome"] in SERVED for claim in proxy.claimed(2)] == [False, True]
    assert len(orders.runs) == 2


def test_the_users_of_openai_agents_are_kept_apart(endpoint, start, join, orders):
    proxy = start(Guesses(ToolCall("my_orders", {}), calibrated=True))
    runtime = join(proxy, orders.my_orders)
    for name in ("A", "B"):
        endpoint.script = turns("my_orders", {}, None, None)
        run_openai_agent(runtime, [function_tool(orders.my_orders)], Login(name), "show my orders")
        results = [m["content"] for m in endpoint.exchanges[-1].body["messages"] if m["role"] == "tool"]
        assert results == [f"order {name} is shipped"] * 2


def test_a_context_tool_of_openai_agents_runs_ahead_once_its_user_is_known(endpoint, start, join, orders):
    """Known after the first call; whether before the second request is a race, so the third counts."""
    proxy = start(Guesses(lambda t: [ToolCall("my_orders", {})] if len(t.history) == 6 else [], calibrated=True))
    runtime = join(proxy, orders.my_orders)
    endpoint.script = turns("my_orders", {}, None, None, orders.ran[2])
    run_openai_agent(runtime, [function_tool(orders.my_orders)], Login("A"))
    assert [claim["outcome"] in SERVED for claim in proxy.claimed(3)] == [False, False, True]
    assert orders.runs == ["A"] * 3


def test_an_error_of_a_tool_reaches_openai_agents_as_ever(endpoint, start, join):
    runs: list[str] = []

    def get_order(order_id: str) -> str:
        """Look an order up."""
        runs.append(order_id)
        raise LookupError("no such order")

    declared = speculate(effect="read", stable_for=30.0)(get_order)
    runtime = join(start(), declared)
    told = []
    for tool in (get_order, declared):
        endpoint.script = turns("get_order", {"order_id": "A1"}, None)
        run_openai_agent(runtime, [function_tool(tool)])
        told.append([m["content"] for m in endpoint.exchanges[-1].body["messages"] if m["role"] == "tool"])
    assert told[0] == told[1] != []
    assert runs == ["A1", "A1"]


# LangChain and LangGraph


def graph_of(runtime: Any, tools: list[Any]) -> Any:
    model = ChatOpenAI(
        model="m", base_url=runtime.base_url, api_key="k", http_client=runtime.http_client(),
        http_async_client=runtime.async_http_client(), max_retries=0, streaming=True,
    ).bind_tools(tools)  # fmt: skip

    def think(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    async def think_async(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def calls(state: MessagesState) -> str:
        return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END

    graph = StateGraph(MessagesState)
    graph.add_node("model", RunnableLambda(think, think_async))
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", calls)
    graph.add_edge("tools", "model")
    return graph.compile()


def results_of(state: Any) -> list[str]:
    return [message.content for message in state["messages"] if message.type == "tool"]


QUESTION = {"messages": [HumanMessage("where is A1?")]}


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_tool_of_langgraph_runs_ahead(endpoint, start, join, orders, way):
    proxy = start(Guesses(ToolCall("get_order", {"order_id": "A1"}), calibrated=True))
    graph = graph_of(join(proxy, orders.get_order), [langchain_tool(orders.get_order)])
    endpoint.script = turns("get_order", {"order_id": "A1"}, orders.ran[0], orders.ran[1])
    state = graph.invoke(QUESTION) if way == "invoke" else asyncio.run(graph.ainvoke(QUESTION))
    assert results_of(state) == ["order A1 is shipped"] * 2
    outcomes = [claim["outcome"] in SERVED for claim in proxy.claimed(2)]
    assert outcomes[-1], "at the latest the second call is served"
    assert len(orders.runs) <= 3


def test_an_async_tool_of_langgraph_runs_ahead_from_its_second_call(endpoint, start, join, orders):
    found = [ToolCall("get_order_async", {"order_id": "A1"})]
    proxy = start(Guesses(lambda t: found if len(t.history) == 3 else [], calibrated=True))
    graph = graph_of(join(proxy, orders.get_order_async), [langchain_tool(orders.get_order_async)])
    endpoint.script = turns("get_order_async", {"order_id": "A1"}, None, orders.ran[1])
    state = asyncio.run(graph.ainvoke(QUESTION))
    assert results_of(state) == ["order A1 is shipped"] * 2
    assert [claim["outcome"] in SERVED for claim in proxy.claimed(2)] == [False, True]
    assert len(orders.runs) == 2


def test_the_users_of_langgraph_are_kept_apart_by_their_configuration(endpoint, start, join):
    runs: list[str] = []

    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def my_orders(config: RunnableConfig) -> str:
        """All orders of the user."""
        name = config["configurable"]["user"]
        runs.append(name)
        return f"orders of {name}"

    proxy = start(Guesses(ToolCall("my_orders", {}), calibrated=True))
    graph = graph_of(join(proxy, my_orders), [langchain_tool(my_orders)])
    for name in ("A", "B"):
        endpoint.script = turns("my_orders", {}, None, None)
        state = graph.invoke(QUESTION, {"configurable": {"user": name}})
        assert results_of(state) == [f"orders of {name}"] * 2


def test_the_users_of_langgraph_are_kept_apart_by_their_state(endpoint, start, join):
    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def my_orders(state: Annotated[dict, InjectedState]) -> str:
        """All orders of the user."""
        return f"asked: {state['messages'][0].content}"

    proxy = start(Guesses(ToolCall("my_orders", {}), calibrated=True))
    graph = graph_of(join(proxy, my_orders), [langchain_tool(my_orders)])
    for name in ("A", "B"):
        endpoint.script = turns("my_orders", {}, None, None)
        state = graph.invoke({"messages": [HumanMessage(f"I am {name}")]})
        assert results_of(state) == [f"asked: I am {name}"] * 2


def test_nothing_is_left_open_after_a_framework_is_done(endpoint, start, join, orders):
    proxy = start(Guesses(ToolCall("get_order", {"order_id": "B2"}), calibrated=True))
    runtime = join(proxy, orders.get_order)
    endpoint.script = turns("get_order", {"order_id": "A1"}, orders.ran[0])
    run_openai_agent(runtime, [function_tool(orders.get_order)])
    eventually(lambda: not proxy.deps.desk.books._open)
    assert {bet["outcome"] for bet in proxy.settled()} == {"miss"}
