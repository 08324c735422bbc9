"""Over HTTP: each agent's session is one of its own, with servers of its own."""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
from collections.abc import AsyncIterator

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from agentspec.calls import ToolCall
from tests.mcp.support import AGENTSPEC, LOOKED_UP, SCRIPT, Served, Shop, Stage, said, soon, written

pytestmark = pytest.mark.anyio

KEYS = {"OPENAI_API_KEY": "k"}


def gateway(stage: Stage, shop: Shop) -> Served:
    config = str(written(stage.folder, orders=shop.entry(tools=LOOKED_UP)))
    command = [*AGENTSPEC, "mcp", "--config", config, "--proxy", stage.proxy.url, "--http", "127.0.0.1:0"]
    return Served(command, stage.folder / "gateway.err", **KEYS)


@contextlib.asynccontextmanager
async def session(url: str, **headers: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=20, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), cache=None) as client,
    ):
        yield client


def order(order_id: str) -> ToolCall:
    return ToolCall("get_order", {"order_id": order_id})


async def test_two_sessions_never_share_a_result(stage: Stage) -> None:
    shop, ids = Shop(stage.folder), [secrets.token_urlsafe(24) for _ in range(2)]
    with gateway(stage, shop) as served:
        async with (
            session(served.url(), **{"x-agentspec-runtime": ids[0]}) as first,
            session(served.url(), **{"x-agentspec-runtime": ids[1]}) as second,
        ):
            for identity in ids:
                await stage.joined(identity)
            assert shop.ran("started") == 2
            await stage.thinks(order("A"), runtime=ids[0])
            foreign = said(await second.call_tool("get_order", {"order_id": "A"}))
            assert shop.ran("get_order A") == 2
            own = said(await first.call_tool("get_order", {"order_id": "A"}))
            assert shop.ran("get_order A") == 2 and own.split()[-1] != foreign.split()[-1]
            assert await stage.settled() == {"hit": 1}

            await stage.thinks(order("B"), runtime=ids[0])
            await second.call_tool("cancel_order", {"order_id": "Z"})
            assert await stage.settled() == {"stale": 1}


async def test_without_an_id_one_session_is_found_by_its_tools_and_of_two_none_is_asked(stage: Stage) -> None:
    shop = Shop(stage.folder)
    with gateway(stage, shop) as served:
        async with session(served.url()) as first:
            await soon(lambda: len(stage.proxy.deps.runtimes) == 1, "one is there")
            await stage.thinks(order("A"), runtime="")
            await first.call_tool("get_order", {"order_id": "A"})
            assert shop.ran("get_order A") == 1 and await stage.settled() == {"hit": 1}
            async with session(served.url()):
                await soon(lambda: len(stage.proxy.deps.runtimes) == 2, "two are there")
                await stage.thinks(order("B"), runtime="", wait=None)
                assert shop.ran("get_order B") == 0
            await soon(lambda: len(stage.proxy.deps.runtimes) == 1, "a session's end ends its channel")


async def test_a_server_over_http_is_fronted_and_its_restart_is_survived(stage: Stage) -> None:
    shop = Shop(stage.folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, SCRIPT, str(shop.log), "--port", str(port)]
    entry = shop.entry(tools=LOOKED_UP) | {"url": f"http://127.0.0.1:{port}/mcp", "headers": {"x-of": "ours"}}
    del entry["command"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(first := Served(command, stage.folder / "shop.err"))
        await soon(lambda: _answers(port), "the server listens")
        async with stage.agent(orders=entry) as agent:
            await stage.thinks(order("A"))
            assert (await agent.call_tool("get_order", {"order_id": "A"})).structured_content == {"status": "order A"}
            assert shop.ran("get_order A") == 1
            first.process.kill()
            first.process.wait()
            with pytest.raises(MCPError, match="the MCP server 'orders' has gone"):
                await agent.call_tool("get_order", {"order_id": "B"})
            stack.enter_context(Served(command, stage.folder / "again.err"))
            await soon(lambda: _answers(port), "the server listens again")
            assert (await agent.call_tool("get_order", {"order_id": "B"})).structured_content == {"status": "order B"}


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
