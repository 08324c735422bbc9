"""Several servers behind one gateway: one list, names of their own, and one that dies does not matter to the others."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from agentspec.calls import ToolCall
from tests.contract.scripted import Endpoint
from tests.mcp.support import LOOKED_UP, Shop, Stage, said, soon

pytestmark = pytest.mark.anyio


class Two(NamedTuple):
    stage: Stage
    agent: Client
    north: Shop
    south: Shop


@pytest.fixture(scope="module")
async def two(anyio_backend: str, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Two]:
    folder = tmp_path_factory.mktemp("several")
    stage, north, south = Stage(endpoint, folder), Shop(folder, "north"), Shop(folder, "south")
    entries: dict[str, Any] = {"north": north.entry(tools=LOOKED_UP), "south": south.entry(tools=LOOKED_UP)}
    broken = {"command": "no-such-command-here"}
    async with stage.agent(**entries, broken=broken) as agent:
        yield Two(stage, agent, north, south)
    stage.close()


async def test_tools_and_prompts_stand_behind_their_servers_name_on_one_page(two: Two) -> None:
    page = await two.agent.list_tools()
    names = [tool.name for tool in page.tools]
    assert page.next_cursor is None and len(names) == len(set(names)) == 22
    assert {"north_get_order", "south_get_order"} <= set(names)
    assert [one.name for one in (await two.agent.list_prompts()).prompts] == ["north_greet", "south_greet"]
    got = await two.agent.get_prompt("south_greet", {"who": "Ann"})
    assert got.messages[0].content.text == "Greet Ann."  # type: ignore[union-attr]


async def test_a_tools_other_properties_are_its_servers(two: Two) -> None:
    async with two.north.direct() as direct:
        theirs = {tool.name: tool for tool in (await direct.list_tools()).tools}
    ours = {tool.name: tool for tool in (await two.agent.list_tools()).tools}
    for name, tool in theirs.items():
        assert ours[f"north_{name}"] == tool.model_copy(update={"name": f"north_{name}"})


async def test_a_hint_of_a_server_that_is_not_trusted_means_nothing(two: Two) -> None:
    held = two.stage.proxy.deps.runtimes.named(two.stage.runtime).tools
    assert {name for name, tool in held.items() if tool.spec.may_run_ahead} == {"north_get_order", "south_get_order"}
    assert held["north_search_web"].spec.effect == "write"


async def test_resources_are_found_by_their_uri(two: Two) -> None:
    read = await two.agent.read_resource("shop://shelf/3")
    assert read.contents[0].text == "of shop://shelf/3"  # type: ignore[union-attr]
    reference = types.PromptReference(name="south_greet")
    done = await two.agent.complete(reference, {"name": "who", "value": "A"})
    assert done.completion.values == ["Anna"]


async def test_a_call_runs_ahead_on_its_own_server(two: Two) -> None:
    await two.stage.thinks(ToolCall("south_get_order", {"order_id": "S"}))
    assert (two.south.ran("get_order S"), two.north.ran("get_order S")) == (1, 0)
    await two.agent.call_tool("south_get_order", {"order_id": "S"})
    assert two.south.ran("get_order S") == 1
    assert await two.stage.settled() == {"hit": 1}


async def test_a_server_that_dies_is_told_and_started_again_and_the_others_go_on(two: Two) -> None:
    with pytest.raises(MCPError, match="the MCP server 'south' has gone"):
        await two.agent.call_tool("south_crash", {})
    assert said(await two.agent.call_tool("north_cancel_order", {"order_id": "N"})) == "N is cancelled"
    assert said(await two.agent.call_tool("south_cancel_order", {"order_id": "S"})) == "S is cancelled"
    assert two.south.ran("started") == 2
    await two.stage.thinks(ToolCall("south_get_order", {"order_id": "T"}))
    await two.agent.call_tool("south_get_order", {"order_id": "T"})
    assert two.south.ran("get_order T") == 1


async def test_a_server_that_is_killed_while_it_rests_is_told_with_the_next_call(two: Two) -> None:
    started = [line for line in two.south.log.read_text().splitlines() if line.startswith("started")]
    os.kill(int(started[-1].split()[1]), signal.SIGKILL)
    await soon(lambda: not os.path.exists(f"/proc/{started[-1].split()[1]}/exe"), "it is dead")
    with pytest.raises(MCPError, match="has gone"):
        await two.agent.call_tool("south_whoami", {})
    assert said(await two.agent.call_tool("south_whoami", {})) == "mcp {}"


async def test_a_server_that_cannot_be_started_is_told_and_is_not_started_over_and_over(two: Two) -> None:
    with pytest.raises(MCPError, match="'broken' cannot be reached: no-such-command-here"):
        await two.agent.call_tool("broken_look", {})
    with pytest.raises(MCPError, match="'broken' is away, and is tried again in"):
        await two.agent.call_tool("broken_look", {})
    with pytest.raises(MCPError, match="there is no 'look' here"):
        await two.agent.call_tool("look", {})
