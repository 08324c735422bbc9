"""HTTP as few write it: answered or refused in HTTP's own words, with no crash and nothing left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.pitfalls.playing import JSON, soon, within
from tests.wire import dialects
from tests.wire.dialects import Dialect

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/models", "/agentspec/status", "/x"])
@pytest.mark.parametrize(
    "line",
    [
        *("origin: http://[x]", "origin: http://[", "origin: null", "origin: \xff", "origin: http://a b"),
        *("host: [x]", "host: [", "host: ]", "host: :", "host: a:b:c", "host: \xff", "host: http://127.0.0.1"),
    ],
)
async def test_an_odd_origin_or_host_is_refused_and_no_crash(endpoint: Any, proxy: Any, path: str, line: str) -> None:
    wire = await proxy.connect()
    host = "" if line.startswith("host") else "host: 127.0.0.1\r\n"
    wire.writer.write(f"POST {path} HTTP/1.1\r\n{host}{line}\r\ncontent-length: 2\r\n\r\n{{}}".encode("latin-1"))
    status = int((await soon(wire.until(b"\r\n\r\n"))).split(b" ")[1])
    assert 400 <= status < 500
    assert endpoint.seen == []


async def test_garbage_behind_a_request_leaves_no_traceback_and_lets_go_of_the_endpoint(
    endpoint: Any, proxy: Any, dialect: Dialect, caplog: pytest.LogCaptureFixture
) -> None:
    asked, go_on, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(exchange: Any) -> None:
        asked.set()
        await go_on.wait()
        try:
            await exchange.stream()
            for _ in range(20):
                await exchange.chunk(b"data: {}\n\n")
            await exchange.end()
        finally:
            over.set()

    endpoint.answer = answer
    wire = await proxy.ask(dialect.path, dialect.request())
    await within(asked)
    wire.writer.write(b"\x00\x01 garbage\r\n\r\n")
    await soon(wire.until(b"\r\n\r\n"))
    go_on.set()
    await within(over)
    after = await proxy.ask("/healthz", method="GET")
    assert b" 200 " in await soon(after.until(b"\r\n\r\n"))
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize(
    "framing",
    [
        "content-length: 3\r\ncontent-length: 4",
        "content-length: 3\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked, gzip",
        "content-length: +3",
        "content-length: 0x3",
        "content-length: -1",
        "transfer-encoding: xchunked",
    ],
)
async def test_a_request_of_two_lengths_does_not_become_two_requests(
    endpoint: Any, proxy: Any, dialect: Dialect, framing: str
) -> None:
    """Request smuggling: what follows a body of unclear length must not reach the endpoint as a request."""
    smuggled = b"GET /v1/smuggled HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    wire = await proxy.connect()
    head = f"POST {dialect.path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{framing}\r\nconnection: close\r\n\r\n"
    wire.writer.write(head.encode() + b"0\r\n\r\n" + smuggled)
    wire.writer.write_eof()
    await soon(wire.rest())
    assert [seen.path for seen in endpoint.seen if "smuggled" in seen.path] == []


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_leaves_the_connection_in_order(endpoint: Any, proxy: Any, status: int) -> None:
    async def answer(exchange: Any) -> None:
        if len(endpoint.seen) == 1:
            await exchange.start(status, ("etag", '"x"'))
        else:
            await exchange.whole(b"[2]", 200, JSON)

    endpoint.answer = answer
    wire = await proxy.ask("/v1/files/x", method="DELETE")
    assert f" {status} ".encode() in await soon(wire.until(b"\r\n\r\n"))
    wire.writer.write(b"GET /v1/files HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    assert (await soon(wire.until(b"[2]"))).startswith(b"HTTP/1.1 200")


async def test_a_request_in_absolute_form_is_the_same_request(endpoint: Any, proxy: Any) -> None:
    body = dialects.chat.request()
    wire = await proxy.ask(f"{proxy.url}/v1/chat/completions?x=1", body)
    assert b" 200 " in await soon(wire.until(b"\r\n\r\n"))
    assert (endpoint.seen[0].path, endpoint.seen[0].body) == ("/v1/chat/completions?x=1", body)


async def test_early_hints_of_the_endpoint_are_not_taken_for_its_answer(
    endpoint: Any, proxy: Any, dialect: Dialect
) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.raw(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
        await exchange.whole(b"[1]", 201, JSON)

    endpoint.answer = answer
    wire = await proxy.ask(dialect.path, dialect.request())
    assert b"HTTP/1.1 201" in await soon(wire.until(b"[1]"))
