"""The proxy away, odd servers, and the process itself: what it writes, how it ends, and what it leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from agentspec.calls import ToolCall
from agentspec.tools_sandbox.shared import SharedDomains
from tests.contract.scripted import eventually
from tests.mcp.support import AGENTSPEC, DEAD_PROXY, LOOKED_UP, Shop, Stage, said, soon, written

pytestmark = pytest.mark.anyio

READ = {"effect": "read"}


async def test_without_its_proxy_the_gateway_just_passes_calls_on(stage: Stage) -> None:
    shop = Shop(stage.folder)
    async with stage.agent(orders=shop.entry(tools=LOOKED_UP)) as agent:
        await stage.thinks(ToolCall("get_order", {"order_id": "A"}))
        stage.close()
        await soon(lambda: "no proxy" in (stage.folder / "stderr").read_text(), "the channel is lost")
        before = time.monotonic()
        assert (await agent.call_tool("get_order", {"order_id": "A"})).structured_content == {"status": "order A"}
        assert time.monotonic() - before < 1 and shop.ran("get_order A") == 2


async def test_a_server_of_the_newer_era_is_reached_and_what_needs_input_is_not_run_ahead(stage: Stage) -> None:
    shop, asked = Shop(stage.folder, "modern", "--modern"), []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"size": "L"})

    entry = shop.entry(tools={"asks": READ, "get_order": READ})
    async with stage.agent(orders=entry, elicitation_callback=elicit) as agent:
        await stage.thinks(ToolCall("asks", {"order_id": "A"}))
        assert asked == [] and await stage.settled() == {"failed": 1}
        assert said(await agent.call_tool("asks", {"order_id": "A"})) == "accept {'size': 'L'}"
        assert asked == ["Which size?"]
        await stage.thinks(ToolCall("get_order", {"order_id": "A"}))
        await agent.call_tool("get_order", {"order_id": "A"})
        assert shop.ran("get_order A") == 1


async def test_a_write_in_another_process_voids_what_ran_before_it(stage: Stage, redis_url: str) -> None:
    shop, others = Shop(stage.folder), SharedDomains(redis_url, "k")
    async with stage.agent("--redis", redis_url, orders=shop.entry(tools=LOOKED_UP)) as agent:
        for written_to, runs in ({"order:B"}, 1), ({"order:A"}, 3):
            await stage.thinks(ToolCall("get_order", {"order_id": "A"}))
            others.end_write(others.begin_write(frozenset(written_to)), frozenset(written_to))
            await agent.call_tool("get_order", {"order_id": "A"})
            assert shop.ran("get_order A") == runs
    others.close()


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([program, "--port", str(port), "--save", "", "--dir", str(tmp_path)], stdout=-3) as running:
        eventually(lambda: _listens(port), "redis listens")
        yield f"redis://127.0.0.1:{port}/0"
        running.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


class Raw:
    """A gateway, spoken to line by line."""

    def __init__(self, folder: Path, shop: Shop, **environment: str) -> None:
        config = written(folder, orders=shop.entry(tools=LOOKED_UP))
        command = [*AGENTSPEC, "mcp", "--config", str(config), "--proxy", DEAD_PROXY]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=os.environ | environment
        )
        self.lines: list[str] = []
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
        self.welcome = self.ask(1, "initialize", client)
        self.tell("notifications/initialized")

    def tell(self, method: str, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, number: int, method: str, params: dict[str, Any]) -> Any:
        assert self.process.stdout is not None
        self.tell(method, id=number, params=params)
        while True:
            self.lines.append(self.process.stdout.readline())
            message = json.loads(self.lines[-1])
            if message.get("id") == number:
                return message

    def ends(self) -> int:
        rest, _ = self.process.communicate(timeout=10)
        self.lines += rest.splitlines()
        return self.process.returncode


def alive(shop: Shop) -> bool:
    pid = next(line.split()[1] for line in shop.log.read_text().splitlines() if line.startswith("started"))
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_standard_output_carries_the_protocol_alone_and_its_end_ends_all(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    gateway = Raw(tmp_path, shop)
    for number, tool in enumerate(("get_order", "steps", "no_such_tool", "refuses"), 2):
        gateway.ask(number, "tools/call", {"name": tool, "arguments": {"order_id": "A"}})
    gateway.tell("notifications/nonsense", params={})
    assert "error" in gateway.ask(9, "nonsense", {})
    assert gateway.ends() == 0
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in gateway.lines if line.strip())
    assert not alive(shop)


def test_a_signal_ends_the_gateway_and_its_servers(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    gateway = Raw(tmp_path, shop)
    assert alive(shop)
    os.kill(gateway.process.pid, signal.SIGTERM)
    assert gateway.process.wait(10) == 128 + signal.SIGTERM
    eventually(lambda: not alive(shop), "the server has ended")


def test_a_runtimes_id_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    gateway = Raw(tmp_path, Shop(tmp_path), AGENTSPEC_RUNTIME="me")
    assert "the runtime's id is a secret" in gateway.welcome["error"]["message"]
    assert gateway.ends() == 0
