"""What one server says reaches the agent as if the gateway were not there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from tests.mcp.support import AGENTSPEC, DEAD_PROXY, LOOKED_UP, Shop, said, soon, written

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]


class Heard:
    """A client's ends: answers what it is asked, and keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.asked: list[str] = []

    def ends(self) -> dict[str, Any]:
        return {
            "message_handler": self._told,
            "elicitation_callback": self._elicit,
            "sampling_callback": self._sample,
            "list_roots_callback": self._roots,
        }

    async def _told(self, message: Any) -> None:
        self.told.append(message)

    async def _elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"size": "L"})

    async def _sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        self.asked.append("sample")
        return types.CreateMessageResult(role="assistant", content=types.TextContent(text="Hi."), model="m")

    async def _roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///home/ann")])  # type: ignore[arg-type]

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.told if isinstance(message, kind)]


class Pair(NamedTuple):
    direct: Client
    through: Client
    shop: Shop
    heard: Heard


@pytest.fixture(scope="module")
async def pair(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    folder = tmp_path_factory.mktemp("passthrough")
    shop, heard, own = Shop(folder), Heard(), Heard()
    config = written(folder, a=shop.entry(tools=LOOKED_UP))
    args = [*AGENTSPEC[1:], "mcp", "--proxy", DEAD_PROXY, "--config", str(config)]
    gateway = StdioServerParameters(command=AGENTSPEC[0], args=args)
    async with contextlib.AsyncExitStack() as stack:
        direct = await stack.enter_async_context(shop.direct(**own.ends()))
        through = await stack.enter_async_context(Client(gateway, cache=None, **heard.ends()))
        yield Pair(direct, through, shop, heard)


async def pages(listing: Any) -> list[Any]:
    found = [await listing()]
    while found[-1].next_cursor:
        found.append(await listing(cursor=found[-1].next_cursor))
    return found


async def test_the_servers_listings_are_the_same_page_by_page(pair: Pair) -> None:
    for listing in ("list_tools", "list_resources", "list_resource_templates", "list_prompts"):
        assert await pages(getattr(pair.through, listing)) == await pages(getattr(pair.direct, listing))
    tools = [tool for page in await pages(pair.through.list_tools) for tool in page.tools]
    assert (tools[0].icons, tools[0].meta, tools[0].annotations) and tools[0].output_schema


async def test_the_introduction_is_the_same(pair: Pair) -> None:
    assert pair.through.server_capabilities == pair.direct.server_capabilities
    assert pair.through.instructions == pair.direct.instructions


async def test_resources_prompts_and_completions_are_the_same(pair: Pair) -> None:
    for client in pair[:2]:
        assert (await client.read_resource("shop://shelf/3")).contents[0].text == "of shop://shelf/3"  # type: ignore[union-attr]
    assert await pair.through.get_prompt("greet", {"who": "Ann"}) == await pair.direct.get_prompt(
        "greet", {"who": "Ann"}
    )
    reference = types.PromptReference(name="greet")
    asked = {"name": "who", "value": "A"}
    assert await pair.through.complete(reference, asked) == await pair.direct.complete(reference, asked)


async def test_a_result_has_its_structure_and_its_meta(pair: Pair) -> None:
    result = await pair.through.call_tool("get_order", {"order_id": "A"})
    assert result.structured_content == {"status": "order A"}
    assert result.meta == {"shop.example/stamp": said(result)}


@pytest.mark.parametrize("call", [("refuses", {"order_id": "A"}), ("get_order", {}), ("no_such_tool", {})])
async def test_a_fault_is_the_servers_own(pair: Pair, call: tuple[str, dict[str, Any]]) -> None:
    told = []
    for client in pair[:2]:
        try:
            told.append(await client.call_tool(*call))
        except MCPError as error:
            told.append(error.error)
    assert told[0] == told[1]


async def test_the_agents_name_and_meta_reach_the_server(pair: Pair) -> None:
    result = await pair.through.call_tool("whoami", {}, meta={"shop.example/user": "ann"})  # type: ignore[typeddict-unknown-key]
    assert said(result) == "mcp {'shop.example/user': 'ann'}"


async def test_a_call_that_the_agent_gives_up_is_given_up_at_the_server(pair: Pair) -> None:
    with anyio.move_on_after(0.3):
        await pair.through.call_tool("slow_order", {"order_id": "gone", "seconds": "1"})
    await asyncio.sleep(1.0)
    assert (pair.shop.ran("slow_order gone"), pair.shop.ran("slow_order_over gone")) == (1, 0)


async def test_many_calls_at_once_each_get_their_own_answer(pair: Pair) -> None:
    results = await asyncio.gather(
        *(pair.through.call_tool("get_order", {"order_id": str(number)}) for number in range(40))
    )
    assert [result.structured_content["status"] for result in results] == [f"order {number}" for number in range(40)]


async def test_progress_and_log_messages_arrive(pair: Pair) -> None:
    steps: list[Any] = []

    async def progress(*step: Any) -> None:
        steps.append(step)

    assert said(await pair.through.call_tool("steps", {"order_id": "A"}, progress_callback=progress)) == "done"
    assert steps == [(0, 3, "step 0"), (1, 3, "step 1"), (2, 3, "step 2")]
    logs = await soon(
        lambda: len(found := pair.heard.of(types.LoggingMessageNotification)) == 3 and found, "three logs"
    )
    assert [log.params.data for log in logs] == ["step 0", "step 1", "step 2"]


async def test_a_server_can_ask_the_agents_user_and_its_model(pair: Pair) -> None:
    assert said(await pair.through.call_tool("asks", {"order_id": "A"})) == "accept {'size': 'L'}"
    assert said(await pair.through.call_tool("samples", {"order_id": "A"})) == "m: Hi."
    assert pair.heard.asked == ["Which size?", "sample"]


async def test_levels_and_subscriptions_reach_the_server(pair: Pair) -> None:
    await pair.through.session.set_logging_level("error")
    await pair.through.session.subscribe_resource("shop://stock")
    assert pair.shop.ran("level error") == 1 and pair.shop.ran("subscribe shop://stock") == 1


async def test_the_agents_roots_are_told_and_asked_for(pair: Pair) -> None:
    await pair.through.session.send_roots_list_changed()
    await soon(lambda: pair.shop.ran("roots file:///home/ann"), "the server has seen the roots")


async def test_changes_are_told_and_new_tools_can_be_called(pair: Pair) -> None:
    await pair.through.call_tool("grow", {"name": "new_tool"})
    await soon(lambda: pair.heard.of(types.ToolListChangedNotification), "the list changed")
    await soon(lambda: pair.heard.of(types.ResourceUpdatedNotification), "the resource changed")
    tools = [tool.name for page in await pages(pair.through.list_tools) for tool in page.tools]
    assert "new_tool" in tools
    assert said(await pair.through.call_tool("new_tool", {"order_id": "A"})) == "grown"
