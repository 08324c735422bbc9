"""`agentspec bench mcp`: what an agent's MCP client sees through the gateway, beside the same server directly.

Four processes besides this one: two MCP servers of the same kind, one of them behind the gateway, the gateway, and a
real proxy before a scripted model. Each round makes one call of a quick tool directly and one through the gateway that
nobody foresaw (in turns, so that both meet the same disturbances), then one of a slow tool (50 ms) that the proxy had
run ahead while the model thought. A call counts as a hit only if the tool had run before it was made.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from agentspec.errors import ConfigError
from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Figure, Report
from agentspec.proxy.bench.mcp_sides import QUICK_TOOL, SLOW_TOOL, schema
from agentspec.proxy.bench.wire_arms import Child, Cores

Progress = Callable[[str], None]

DIRECT, MISS, HIT, SLOW_DIRECT, FRESH = "direct", "miss", "hit", "slow_direct", "fresh_client"
_SIDES = "agentspec.proxy.bench.mcp_sides"
_JOIN_LIMIT_S = 10.0
_BLOCK = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rounds; `warm` more are not counted. `fresh`: clients that are made for one call."""

    rounds: int = 300
    warm: int = 20
    fresh: int = 5


FULL, QUICK = Plan(), Plan(rounds=60, warm=10, fresh=2)


@dataclass
class Times:
    """Milliseconds by kind of call, and the calls that should have been hits and were none."""

    ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    not_ahead: int = 0


def run(quick: bool = False, *, plan: Plan | None = None, progress: Progress = lambda line: None) -> Report:
    """Measure.

    Raises:
        ConfigError: a process does not start, or nothing runs ahead.
    """
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as folder:
        try:
            times = asyncio.run(_measure(Path(folder), plan or (QUICK if quick else FULL), progress))
        except* ConfigError as faults:
            raise ConfigError(str(_first(faults))) from None
    if not times.ms[HIT]:
        raise ConfigError("no call ran ahead of the agent's own in time: the machine is too busy")
    return Report("MCP calls through the gateway", tuple(figures_of(times)), environment())


def figures_of(times: Times) -> list[Figure]:
    """Medians, with the 5th and the 95th percentile; what a miss adds, with the least and greatest of blocks."""
    found = [Figure("hit_ms", *_spread(times.ms[HIT])), _added(times.ms[MISS], times.ms[DIRECT])]
    found += [Figure(f"{kind}_ms", *_spread(times.ms[kind])) for kind in (DIRECT, MISS, SLOW_DIRECT, FRESH)]
    return [*found, Figure("not_ahead", times.not_ahead, n=len(times.ms[HIT]) + times.not_ahead)]


def _spread(ms: Sequence[float]) -> tuple[float, str, float, float, int]:
    ordered = sorted(ms)
    last = len(ordered) - 1
    return statistics.median(ms), "ms", ordered[round(last * 0.05)], ordered[round(last * 0.95)], len(ms)


def _added(miss: Sequence[float], direct: Sequence[float]) -> Figure:
    starts = range(0, max(1, len(miss) - _BLOCK + 1), _BLOCK)
    blocks = [statistics.median(miss[at : at + _BLOCK]) - statistics.median(direct[at : at + _BLOCK]) for at in starts]
    value = statistics.median(miss) - statistics.median(direct)
    return Figure("miss_added_ms", value, "ms", min(blocks), max(blocks), len(miss))


async def _measure(folder: Path, plan: Plan, progress: Progress) -> Times:
    model_port, proxy_port = _free_ports(2)
    command = [sys.executable, "-m", _SIDES, "proxy", str(model_port), str(proxy_port)]
    times = Times()
    async with AsyncExitStack() as stack:
        proxy = stack.enter_context(Child("the proxy", command, Cores.usable().server, folder / "proxy.log"))
        await asyncio.to_thread(proxy.wait_for, partial(_listens, proxy_port))
        errors = stack.enter_context((folder / "clients.log").open("w"))
        runtime, url = secrets.token_urlsafe(24), f"http://127.0.0.1:{proxy_port}"
        gateway = _gateway(folder, url, runtime)
        direct = await stack.enter_async_context(_client(_server(), errors))
        through = await stack.enter_async_context(_client(gateway, errors))
        http = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, timeout=20))
        think = partial(_think, http, f"{url}/r/{runtime}/v1/chat/completions")
        await _until_it_runs_ahead(through, think)
        progress("all are there")
        for number in range(plan.warm + plan.rounds):
            await _round(number, direct, through, think, times if number >= plan.warm else Times())
        progress(f"{plan.rounds} rounds, {times.not_ahead} calls not ahead in time")
        for number in range(plan.fresh):
            began_s = time.perf_counter()
            async with _client(_server(), errors) as fresh:
                await fresh.call_tool(QUICK_TOOL, {"key": f"f{number}"})
                times.ms[FRESH].append(_since_ms(began_s))
    return times


async def _round(number: int, direct: Client, through: Client, think: Any, times: Times) -> None:
    pair = [(DIRECT, direct, QUICK_TOOL), (MISS, through, QUICK_TOOL)]
    for kind, client, tool in [*(pair if number % 2 else reversed(pair)), (SLOW_DIRECT, direct, SLOW_TOOL)]:
        times.ms[kind].append((await _timed(client, tool, f"{kind}{number}"))[0])
    await think(f"hit{number}")
    took_ms, ran_ahead = await _timed(through, SLOW_TOOL, f"hit{number}")
    if ran_ahead:
        times.ms[HIT].append(took_ms)
    else:
        times.not_ahead += 1


async def _timed(client: Client, tool: str, key: str) -> tuple[float, bool]:
    """Milliseconds of a call, and whether the tool had run before it was made."""
    called_at, began_s = time.monotonic(), time.perf_counter()
    result = await client.call_tool(tool, {"key": key})
    took_ms = _since_ms(began_s)
    return took_ms, float(getattr(result.content[0], "text", "inf")) < called_at


def _since_ms(began_s: float) -> float:
    return (time.perf_counter() - began_s) * 1e3


async def _think(http: httpx.AsyncClient, url: str, key: str) -> None:
    """A model request whose answer calls the slow tool with this key. Its model is new, so nothing is known of it."""
    messages = [{"role": "user", "content": key}]
    body = {"model": secrets.token_hex(4), "stream": True, "tools": schema(), "messages": messages}
    async with http.stream("POST", url, json=body) as answer:
        async for _ in answer.aiter_bytes():
            pass


async def _until_it_runs_ahead(through: Client, think: Any) -> None:
    deadline = time.monotonic() + _JOIN_LIMIT_S
    for number in range(10_000):
        await think(f"first{number}")
        if (await _timed(through, SLOW_TOOL, f"first{number}"))[1]:
            return
        if time.monotonic() > deadline:
            raise ConfigError("no call ran ahead of the agent's own: the gateway did not reach the proxy")


def _first(fault: BaseException) -> BaseException:
    return _first(fault.exceptions[0]) if isinstance(fault, BaseExceptionGroup) else fault


def _server() -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["-m", _SIDES, "server"], env=_paths())


def _gateway(folder: Path, url: str, runtime: str) -> StdioServerParameters:
    declared = {name: {"effect": "read"} for name in (QUICK_TOOL, SLOW_TOOL)}
    entry = {
        "command": sys.executable,
        "args": ["-m", _SIDES, "server"],
        "env": _paths(),
        "agentspec": {"stable_for": 60, "tools": declared},
    }
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"bench": entry}}))
    args = ["-m", "agentspec.proxy", "mcp", "--config", str(folder / "servers.json"), "--proxy", url]
    return StdioServerParameters(command=sys.executable, args=args, env=_paths() | {"AGENTSPEC_RUNTIME": runtime})


def _paths() -> dict[str, str]:
    """So that the processes find this very package."""
    found = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": found} if found else {}


def _client(server: StdioServerParameters, errors: Any) -> Client:
    return Client(stdio_client(server, errors), mode="legacy", cache=None)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
