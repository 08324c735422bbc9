"""Wire and streaming, row 6: labels of compression are true, and headers of one connection stay on it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pitfalls.playing import CHUNKED, JSON, SSE, Got, fetch, says, soon, streams
from tests.wire import dialects
from tests.wire.answers import CALL, TEXT, Answer, Part
from tests.wire.dialects import Dialect

pytestmark = pytest.mark.anyio

ANSWER = Answer((Part(TEXT, ("Hi ", "there")), Part(CALL, ('{"a"', ": 1}"), "f", "call_1")))
# an empty last block of a brotli stream, after one stored block: "hi"
BROTLI = b"\x0b\x00\x80hi\x03"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": lambda data: b"\x28\xb5\x2f\xfd\x20" + bytes([len(data) % 256]) + b"\x01\x00\x00" + data,  # a frame's head
    "br": lambda _: BROTLI,
    "gzip, br": lambda data: BROTLI + data,
    "x-unknown": lambda data: data[::-1],
}
PATHS = ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"]


@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize("accepts", ["gzip, deflate, br, zstd", "identity"])
async def test_a_compressed_answer_stays_compressed_and_keeps_its_label(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, streamed: bool, encoding: str, accepts: str
) -> None:
    """Row: "stale `content-encoding` after the client library decompressed"."""
    packed = PACKERS[encoding](dialect.stream(ANSWER) if streamed else dialect.whole(ANSWER))
    label = ("content-encoding", encoding)
    cut = len(packed) // 3
    endpoint.answer = streams(packed[:cut], packed[cut:], headers=[SSE, label]) if streamed else says(packed, label)
    got = await fetch(client, dialect.path, dialect.request(stream=streamed), accept_encoding=accepts)
    assert (got.body, got.header("content-encoding")) == (packed, [encoding])
    if not streamed:
        assert got.header("content-length") == [str(len(packed))]


async def test_a_plain_answer_gets_no_label(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, streamed: bool
) -> None:
    """Row: "gzip label on plain text": even where the client would take gzip, what is plain is not called gzip."""
    data = dialect.stream(ANSWER) if streamed else dialect.whole(ANSWER)
    endpoint.answer = streams(data) if streamed else says(data)
    got = await fetch(client, dialect.path, dialect.request(stream=streamed), accept_encoding="gzip")
    assert (got.body, got.header("content-encoding")) == (data, [])


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_asks_for_nothing_compressed_makes_us_ask_for_nothing_compressed(
    endpoint: Any, client: httpx.AsyncClient, path: str
) -> None:
    """Row: "stale `content-encoding`": what the client cannot read is not asked for in its name."""
    await fetch(client, path, b'{"model": "m"}', accept_encoding="identity")
    assert endpoint.seen[0].header(b"accept-encoding") == [b"identity"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_turn_is_read_through_its_compression(
    endpoint: Any, client: httpx.AsyncClient, turns: Any, dialect: Dialect, streamed: bool, encoding: str
) -> None:
    """Row: "stale `content-encoding`": our own reader goes by the label, too."""
    packed = PACKERS[encoding](dialect.stream(ANSWER) if streamed else dialect.whole(ANSWER))
    label = ("content-encoding", encoding)
    parts = [packed[at : at + 7] for at in range(0, len(packed), 7)]
    endpoint.answer = streams(*parts, headers=[SSE, label]) if streamed else says(packed, JSON, label)
    got = await fetch(client, dialect.path, dialect.request(stream=streamed))
    assert got.body == packed
    assert [(turn["calls"], turn["prompt_tokens"]) for turn in turns()] == [(1, 12)]


@pytest.mark.parametrize("damage", ["cut off", "rubbish", "plain"])
async def test_a_false_label_is_the_endpoints_business(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, streamed: bool, damage: str
) -> None:
    """Row: "gzip label on plain text": where the endpoint lies, its bytes and its label pass all the same."""
    data = dialect.stream(ANSWER) if streamed else dialect.whole(ANSWER)
    sent = {"cut off": gzip.compress(data)[:-9], "rubbish": b"\x1f\x8b\x08" + b"\xff" * 50, "plain": data}[damage]
    label = ("content-encoding", "gzip")
    endpoint.answer = streams(sent, headers=[SSE, label]) if streamed else says(sent, JSON, label)
    got = await fetch(client, dialect.path, dialect.request(stream=streamed))
    assert (got.status, got.body, got.header("content-encoding")) == (200, sent, ["gzip"])


HOPS = {
    "keep-alive": "timeout=5",
    "proxy-connection": "keep-alive",
    "te": "trailers",
    "trailer": "x-checksum",
    "proxy-authenticate": "Basic",
    "x-named": "1",
    "x-named-too": "2",
}
NAMED = "keep-alive, X-Named,x-named-too , te"


@pytest.mark.parametrize("path", PATHS)
async def test_headers_of_the_clients_connection_do_not_reach_the_endpoint(
    endpoint: Any, proxy: Any, path: str
) -> None:
    """Row: "hop-by-hop headers forwarded", also those that `Connection` names."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in [*HOPS.items(), ("connection", NAMED), ("x-kept", "1")])
    wire = await proxy.ask(path, dialects.chat.request(), headers=lines)
    await soon(wire.until(b"\r\n\r\n"))
    seen = endpoint.seen[0]
    assert [name for name in HOPS if seen.header(name.encode())] == []
    assert b"x-named" not in b",".join(seen.header(b"connection")).lower()
    assert seen.header(b"x-kept") == [b"1"]


@pytest.mark.parametrize("path", PATHS)
async def test_headers_of_the_endpoints_connection_do_not_reach_the_client(
    endpoint: Any, client: httpx.AsyncClient, path: str
) -> None:
    """Row: "hop-by-hop headers forwarded", in the other direction."""
    endpoint.answer = says(b"{}", JSON, *HOPS.items(), ("connection", NAMED), ("x-kept", "1"))
    got = await fetch(client, path, dialects.chat.request())
    assert [name for name in HOPS if got.header(name)] == []
    assert (got.body, got.header("x-kept")) == (b"{}", ["1"])


@pytest.mark.parametrize("path", PATHS)
async def test_an_endpoint_that_closes_its_connection_does_not_close_the_clients(
    endpoint: Any, proxy: Any, path: str
) -> None:
    """Row: "hop-by-hop headers forwarded": `Connection: close` is about the endpoint's connection."""
    endpoint.answer = says(b'{"n": 1}', JSON, ("connection", "close"))
    body = dialects.chat.request()
    wire = await proxy.ask(path, body)
    head = await soon(wire.until(b'{"n": 1}'))
    assert b"connection: close" not in head.lower()
    wire.writer.write(
        b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)) + body
    )
    assert b" 200 " in await soon(wire.until(b'{"n": 1}'))


@pytest.mark.parametrize("path", PATHS)
async def test_trailers_do_not_end_up_in_the_body(endpoint: Any, client: httpx.AsyncClient, path: str) -> None:
    """Row: hop-by-hop parts of a message: trailers are dropped, the body before them is whole."""

    async def answer(exchange: Any) -> None:
        await exchange.start(200, SSE, CHUNKED, ("trailer", "x-checksum"))
        await exchange.raw(b"8;ext=1\r\ndata: 1\n\r\n1\r\n\n\r\n0\r\nx-checksum: abc\r\nx-more: 1\r\n\r\n")

    endpoint.answer = answer
    for _ in range(2):
        got: Got = await fetch(client, path, dialects.chat.request())
        assert (got.status, got.body) == (200, b"data: 1\n\n")
        assert got.header("trailer") == got.header("x-checksum") == []


async def test_a_gzip_bomb_does_not_fill_the_memory(endpoint: Any, client: httpx.AsyncClient, streamed: bool) -> None:
    """Row 6, the other way round: reading a copy of a compressed answer has its bound as well."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = (b": " + b" " * 1021 + b"\n") * 1024
    bomb = b"".join(packer.compress(block) for _ in range(250)) + packer.flush()
    endpoint.answer = streams(bomb, headers=[SSE if streamed else JSON, ("content-encoding", "gzip")])
    forget_peak()
    before = peak_mb()
    got = await fetch(client, "/v1/chat/completions", dialects.chat.request(stream=streamed))
    assert got.body == bomb
    assert peak_mb() - before < 150, f"{len(bomb)} bytes of gzip took {peak_mb() - before:.0f} MB"


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
