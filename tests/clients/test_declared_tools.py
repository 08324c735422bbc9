"""With declared tools that may run ahead, every client still ends the same, whether or not a guess was used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import agentspec
from agentspec.calls import ToolCall
from tests.clients import run_langgraph, run_openai_agents, run_pydantic_ai, run_sdks, shop
from tests.clients.serving import StartProxy
from tests.clients.upstream import Upstream
from tests.clients.ways import Both, Way, status_of
from tests.contract.support import Guesses

Run = Callable[..., Any]
"""(way, streamed=, tools=): everything that a run gives its user."""

DECLARED = tuple(agentspec.speculate(effect="read", stable_for=30.0)(tool) for tool in shop.TOOLS)


def langgraph(way: Way, api: str, streamed: bool, tools: Any) -> Any:
    return run_langgraph.run(way, api, "stream" if streamed else "ainvoke", tools)


def over(run: Run, api: str) -> Run:
    return lambda way, streamed, tools: run(way, api, streamed, tools)


RUNS: dict[str, Run] = {
    "sdk-chat": run_sdks.chat,
    "sdk-responses": run_sdks.responses,
    "sdk-messages": run_sdks.messages,
    "tool_runner-messages": run_sdks.tool_runner,
    **{f"openai_agents-{api}": over(run_openai_agents.run, api) for api in run_openai_agents.MODELS},
    **{f"pydantic_ai-{api}": over(run_pydantic_ai.run, api) for api in run_pydantic_ai.APIS},
    **{f"langgraph-{api}": over(langgraph, api) for api in run_langgraph.APIS},
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*httpx.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*create_react_agent.*"),
]


@pytest.fixture
def way(upstream: Upstream, start_proxy: StartProxy) -> Iterator[Way]:
    """Through a proxy that guesses every call of the loop, as a runtime that offers the tools."""
    oracle: Any = Guesses(*(ToolCall(call.name, call.arguments) for call in (*shop.ORDERS, shop.STOCK)))
    proxy = start_proxy(f"{upstream.root}/v1", oracle)
    with agentspec.connect(proxy.root, tools=DECLARED, api_key="k-1", wait_s=5.0) as runtime:
        assert runtime.connected
        yield Way("runtime", runtime.base_url.removesuffix("/v1"), runtime)
    assert status_of(proxy.root)["faults"] == {}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", RUNS)
def test_a_loop_with_declared_tools_ends_the_same(both: Both, name: str, streamed: bool) -> None:
    def run(way: Way) -> Any:
        tools = DECLARED if way.runtime is not None else shop.TOOLS
        return RUNS[name](way, streamed=streamed, tools=tools)

    both.same(run, *shop.LOOP)
    told = str([asked.json for asked in both.upstream.asked])
    assert all(result in told for result in shop.RESULTS)
    assert any(status_of(both.other.root)["outcomes"].values()), "nothing was guessed"
