"""Many agents at once: nobody queues behind another, nobody gets another's answer."""

from __future__ import annotations

import asyncio
import gc
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

CROWD = 150


async def test_a_hundred_and_fifty_streams_are_open_at_once(
    endpoint: Any, proxy: Any, chat: Callable[..., bytes]
) -> None:
    go_on = asyncio.Event()

    async def answer(exchange: Any) -> None:
        word = json.loads(exchange.body)["messages"][0]["content"]
        await exchange.stream()
        await exchange.chunk(b"data: first " + word.encode() + b";\n\n")
        await go_on.wait()
        await exchange.chunk(b"data: second " + word.encode() + b";\n\n")
        await exchange.end()

    endpoint.answer = answer
    wires = [await proxy.ask("/v1/chat/completions", chat(f"agent-{n}")) for n in range(CROWD)]
    firsts = await asyncio.wait_for(asyncio.gather(*(wire.until(b";\n\n") for wire in wires)), 15)
    go_on.set()
    seconds = await asyncio.wait_for(asyncio.gather(*(wire.until(b";\n\n") for wire in wires)), 15)
    for number, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        assert first.endswith(b"first agent-%d;\n\n" % number)
        assert second.endswith(b"second agent-%d;\n\n" % number)


async def test_a_slow_stream_holds_nobody_up(endpoint: Any, proxy: Any, chat: Callable[..., bytes]) -> None:
    async def answer(exchange: Any) -> None:
        if b"slow" in exchange.body:
            await exchange.stream()
            await exchange.gone.wait()
        else:
            await exchange.whole(b"{}")

    endpoint.answer = answer
    slow = await proxy.ask("/v1/chat/completions", chat("slow"))
    await slow.until(b"\r\n\r\n")
    for number in range(20):
        quick = await proxy.ask("/v1/chat/completions", chat(str(number)))
        assert b" 200 " in await asyncio.wait_for(quick.until(b"\r\n"), 2)
        quick.close()
    slow.cut()


async def test_a_connection_is_kept_and_used_again(endpoint: Any, proxy: Any, chat: Callable[..., bytes]) -> None:
    body = chat()
    wire = await proxy.ask("/v1/chat/completions", body)
    for _ in range(3):
        assert (await wire.until(b'{"hello": 1}')).startswith(b"HTTP/1.1 200")
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        wire.writer.write(head + body)
    await wire.until(b'{"hello": 1}')
    assert len({id(seen.wire) for seen in endpoint.seen}) == 1


async def test_long_conversations_do_not_stay_in_memory(endpoint: Any, proxy: Any) -> None:
    def held_mb() -> float:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    async def talk(number: int) -> None:
        messages = [{"role": "user", "content": f"{number} " + "x" * 2**21}]
        body = json.dumps({"model": "m", "messages": messages}).encode()
        wire = await proxy.ask("/v1/chat/completions", body)
        await wire.until(b'{"hello": 1}')
        wire.close()
        endpoint.seen.clear()

    for number in range(10):
        await talk(number)
    before = held_mb()
    for number in range(10, 130):
        await talk(number)
    assert held_mb() - before < 120, "120 turns of 2 MB are over; the proxy should have let go of them"
