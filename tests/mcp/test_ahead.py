"""What runs ahead through the gateway, and what of it is handed over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import mcp_types as types
import pytest
from mcp import Client

from agentspec.calls import ToolCall
from tests.contract.scripted import Endpoint
from tests.mcp.support import Shop, Stage, said, soon

pytestmark = pytest.mark.anyio

READ = {"effect": "read"}
DECLARED = {
    "get_order": {**READ, "reads": ["order:{order_id}"]},
    "slow_order": READ,
    "refuses": READ,
    "asks": READ,
    "samples": READ,
    "steps": READ,
}


class Play(NamedTuple):
    stage: Stage
    agent: Client
    shop: Shop
    asked: list[str]
    told: list[Any]


@pytest.fixture(scope="module")
async def play(anyio_backend: str, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Play]:
    folder = tmp_path_factory.mktemp("ahead")
    stage, shop, asked, told = Stage(endpoint, folder), Shop(folder), [], []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"size": "L"})

    async def hear(message: Any) -> None:
        told.append(message)

    async with stage.agent(
        orders=shop.entry(tools=DECLARED, trusted=True), elicitation_callback=elicit, message_handler=hear
    ) as agent:
        yield Play(stage, agent, shop, asked, told)
    stage.close()


def order(order_id: str, tool: str = "get_order", **more: str) -> ToolCall:
    return ToolCall(tool, {"order_id": order_id, **more})


async def test_a_first_call_that_was_foreseen_is_a_hit(play: Play) -> None:
    await play.stage.thinks(order("A1"))
    assert play.shop.ran("get_order A1") == 1
    result = await play.agent.call_tool("get_order", {"order_id": "A1"})
    assert play.shop.ran("get_order A1") == 1
    assert result.structured_content == {"status": "order A1"} and result.meta == {"shop.example/stamp": said(result)}
    assert await play.stage.settled() == {"hit": 1}


async def test_each_real_call_has_a_run_of_its_own(play: Play) -> None:
    await play.stage.thinks(order("A2"))
    first, second = [said(await play.agent.call_tool("get_order", {"order_id": "A2"})) for _ in range(2)]
    assert first != second and play.shop.ran("get_order A2") == 2


async def test_another_call_is_a_miss_and_the_run_is_dropped(play: Play) -> None:
    await play.stage.settled()
    await play.stage.thinks(order("A3"), order("B3"))
    await play.agent.call_tool("get_order", {"order_id": "A3"})
    assert (play.shop.ran("get_order A3"), play.shop.ran("get_order B3")) == (1, 1)
    assert await play.stage.settled() == {"miss": 1}


async def test_a_call_that_comes_while_it_runs_joins(play: Play) -> None:
    await play.agent.call_tool("slow_order", {"order_id": "W", "seconds": "0.8"})  # it is known to be slow
    await play.stage.thinks(order("A4", "slow_order", seconds="0.6"), wait=False)
    await soon(lambda: play.shop.ran("slow_order A4"), "it runs")
    await play.agent.call_tool("slow_order", {"order_id": "A4", "seconds": "0.6"})
    assert play.shop.ran("slow_order A4") == 1
    assert await play.stage.settled() == {"joined": 1}


async def test_a_run_that_is_not_wanted_is_cancelled_at_the_server(play: Play) -> None:
    await play.stage.thinks(order("A5"), order("B5", "slow_order", seconds="5"), wait=False)
    assert await play.stage.settled() == {"miss": 1}
    before = time.monotonic()
    await play.agent.call_tool("get_order", {"order_id": "A5"})
    assert time.monotonic() - before < 2
    await asyncio.sleep(0.2)
    assert play.shop.ran("slow_order_over B5") == 0


async def test_a_write_of_anything_through_the_gateway_voids_what_ran_before_it(play: Play) -> None:
    await play.stage.thinks(order("A6"))
    await play.agent.call_tool("cancel_order", {"order_id": "Z"})  # nobody declared it: a write of everything
    assert await play.stage.settled() == {"stale": 1}
    await play.agent.call_tool("get_order", {"order_id": "A6"})
    assert play.shop.ran("get_order A6") == 2


async def test_an_undeclared_tool_never_runs_ahead(play: Play) -> None:
    await play.stage.settled()
    await play.stage.thinks(order("A7", "search_web"), order("A7", "cancel_order"))
    assert play.shop.ran("cancel_order A7") == 0
    assert await play.stage.settled() == {"vetoed": 1}


async def test_a_result_with_an_error_is_not_handed_over(play: Play) -> None:
    await play.stage.thinks(order("A8", "refuses"))
    result = await play.agent.call_tool("refuses", {"order_id": "A8"})
    assert result.is_error and play.shop.ran("refuses A8") == 2
    assert await play.stage.settled() == {"failed": 1}


async def test_a_tool_that_asks_while_it_runs_ahead_is_refused_and_barred(play: Play) -> None:
    await play.stage.thinks(order("A9", "asks"))
    assert play.asked == [] and await play.stage.settled() == {"failed": 1}
    assert said(await play.agent.call_tool("asks", {"order_id": "A9"})) == "accept {'size': 'L'}"
    assert play.asked == ["Which size?"]
    await play.stage.thinks(order("B9", "asks"))
    assert play.shop.ran("asks B9") == 0


async def test_a_question_while_a_real_call_goes_on_is_that_calls_and_ends_what_runs_ahead(play: Play) -> None:
    await play.stage.settled()
    play.asked.clear()
    thinking = asyncio.create_task(play.stage.thinks(order("C9", "slow_order", seconds="1")))
    await soon(lambda: play.shop.ran("slow_order C9"), "it runs")
    assert said(await play.agent.call_tool("asks", {"order_id": "C9"})) == "accept {'size': 'L'}"
    await thinking
    assert play.asked == ["Which size?"] and await play.stage.settled() == {"failed": 1}
    assert play.shop.ran("slow_order_over C9") == 0
    await play.stage.thinks(order("D9", "slow_order", seconds="0"))
    await play.agent.call_tool("slow_order", {"order_id": "D9", "seconds": "0"})
    assert play.shop.ran("slow_order D9") == 1


async def test_nothing_is_told_of_a_run_ahead(play: Play) -> None:
    await play.stage.settled()
    logs = [one for one in play.told if isinstance(one, types.LoggingMessageNotification)]
    await play.stage.thinks(order("A10", "steps"))
    assert said(await play.agent.call_tool("steps", {"order_id": "A10"})) == "done"
    assert await play.stage.settled() == {"hit": 1}
    assert [one for one in play.told if isinstance(one, types.LoggingMessageNotification)] == logs


async def test_a_call_with_meta_of_its_own_is_another_call(play: Play) -> None:
    await play.stage.thinks(order("A11"))
    meta: Any = {"shop.example/user": "ann", "claudecode/toolUseId": "toolu_1"}
    await play.agent.call_tool("get_order", {"order_id": "A11"}, meta=meta)
    assert play.shop.ran("get_order A11") == 2
    named: Any = {
        "claudecode/toolUseId": "toolu_2",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033-01",
    }
    await play.stage.thinks(order("B11"))
    await play.agent.call_tool("get_order", {"order_id": "B11"}, meta=named)
    assert play.shop.ran("get_order B11") == 1


async def test_a_trusted_servers_hint_that_leaves_the_world_open_means_egress(play: Play) -> None:
    held = play.stage.proxy.deps.runtimes.named(play.stage.runtime).tools
    assert held["search_web"].spec.egress and held["search_web"].spec.effect == "read"
    assert not held["get_order"].spec.egress
    assert held["cancel_order"].spec.effect == "write" and not held["cancel_order"].spec.may_run_ahead


async def test_a_new_tool_is_known_to_the_proxy(play: Play) -> None:
    await play.agent.call_tool("grow", {"name": "later"})
    await soon(lambda: "later" in play.stage.proxy.deps.runtimes.named(play.stage.runtime).tools, "it is introduced")
