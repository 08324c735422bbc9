"""The load generator against the endpoint: what it counts, and what it does when answers go wrong."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from agentspec.proxy.bench.wire_bodies import Size, bodies
from agentspec.proxy.bench.wire_load import LoadFailed, Sample, Target, connected, percentile


def load(target: Target, size: Size, connections: int, *, streamed: bool, seconds: float = 0.1) -> Sample:
    async def measure() -> Sample:
        pool = await connected(target, [bodies(size, streamed=streamed) for _ in range(connections)])
        try:
            await pool.run(0.01)
            return await pool.run(seconds, spread_s=0.01)
        finally:
            pool.close()

    return uvloop.run(measure())


@pytest.mark.parametrize("size", list(Size))
def test_whole_answers_are_counted(endpoint_port: int, size: Size) -> None:
    sample = load(Target(endpoint_port), size, 3, streamed=False)
    assert sample.requests >= 3
    assert sample.rps == pytest.approx(sample.requests / sample.elapsed_s)
    assert min(sample.latency_ms) > 0
    assert sample.ttft_ms == sample.chunk_ms == []


def test_of_each_stream_the_first_chunk_and_the_later_ones_are_counted(endpoint_port: int) -> None:
    sample = load(Target(endpoint_port), Size.SMALL, 4, streamed=True)
    assert len(sample.ttft_ms) == sample.requests >= 4
    assert len(sample.chunk_ms) == 4 * sample.requests
    assert min(sample.chunk_ms) >= 0
    assert sum(sample.ttft_ms) <= sum(sample.latency_ms)


def test_another_status_than_200_ends_the_run(endpoint_port: int) -> None:
    with pytest.raises(LoadFailed, match="status 404"):
        load(Target(endpoint_port, "/elsewhere"), Size.SMALL, 2, streamed=False)


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"])
def test_a_broken_connection_ends_the_run(answer: bytes) -> None:
    async def ask() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            pool = await connected(Target(port), [bodies(Size.SMALL, streamed=False)])
            await pool.run(5.0)

    with pytest.raises(LoadFailed, match=r"closed|not HTTP"):
        asyncio.run(ask())


def test_stamps_are_found_however_the_stream_is_cut() -> None:
    async def ask() -> Sample:
        whole = b"".join(b"5f\r\n%b\r\n" % (b"data: @%020d ".ljust(95, b".") % 1)[:95] for _ in range(6)) + b"0\r\n\r\n"

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(2000)
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            for at in range(0, len(whole), 7):
                writer.write(whole[at : at + 7])
                await asyncio.sleep(0)

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            pool = await connected(Target(server.sockets[0].getsockname()[1]), [bodies(Size.SMALL, streamed=True)])
            try:
                return await pool.run(0.0)
            finally:
                pool.close()

    sample = asyncio.run(ask())
    assert (len(sample.ttft_ms), len(sample.chunk_ms)) == (1, 5)


def test_percentiles_are_interpolated() -> None:
    values = [float(value) for value in range(101)]
    assert percentile(values[::-1], 0.95) == 95.0
    assert percentile([1.0, 2.0], 0.25) == 1.25
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.5) is None
