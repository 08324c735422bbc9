"""Wire and streaming, row 9: what Claude Code sends and probes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.pitfalls.playing import JSON, fetch, plays, says, soon
from tests.wire.answers import CALL, TEXT, Answer, Part
from tests.wire.dialects import messages

pytestmark = pytest.mark.anyio

ANSWER = Answer((Part(TEXT, ("Hi ", "there")), Part(CALL, ('{"a"', ": 1}"), "f", "toolu_1")))
BETA = "claude-code-20250219,oauth-2025-04-20, interleaved-thinking-2025-05-14,,fine-grained-tool-streaming-2025-05-14"
HEADERS = (
    ("anthropic-beta", BETA),
    ("anthropic-beta", "context-1m-2025-08-07"),
    ("anthropic-version", "2023-06-01"),
    ("anthropic-dangerous-direct-browser-access", "true"),
    ("x-api-key", "sk-ant-key"),
    ("authorization", "Bearer sk-ant-oat"),
    ("x-app", "cli"),
    ("x-claude-code-session-id", "f00"),
    ("x-stainless-retry-count", "0"),
    ("user-agent", "claude-cli/2.0.0 (external, cli)"),
    ("x-odd", " spaces  inside  "),
)


@pytest.mark.parametrize("query", ["?beta=true", "?beta=true&x=%2F%20+", "", "?", "?beta"])
async def test_the_beta_query_is_a_turn_and_reaches_the_endpoint(
    endpoint: Any, client: httpx.AsyncClient, turns: Any, query: str
) -> None:
    """Row: "Claude Code: path is `/v1/messages?beta=true`"."""
    endpoint.answer, sent = plays(messages, ANSWER, True)
    got = await fetch(client, f"/v1/messages{query}", messages.request())
    assert (got.status, got.body) == (200, sent)
    assert endpoint.seen[0].path in (f"/v1/messages{query}", f"/v1/messages{query}".rstrip("?"))
    assert [turn["calls"] for turn in turns()] == [1]


@pytest.mark.parametrize("path", ["/v1/messages?beta=true", "/v1/messages/count_tokens?beta=true", "/v1/models"])
async def test_its_headers_arrive_byte_for_byte_and_in_order(endpoint: Any, proxy: Any, path: str) -> None:
    """Row: "`anthropic-beta`/`anthropic-version` byte for byte"."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in HEADERS)
    wire = await proxy.ask(path, messages.request(), headers=lines)
    await soon(wire.until(b"\r\n\r\n"))
    names = {name for name, _ in HEADERS}
    seen = [
        (name.decode().lower(), value.decode().strip())
        for name, value in endpoint.seen[0].headers
        if name.decode().lower() in names
    ]
    assert seen == [(name, value.strip()) for name, value in HEADERS]


async def test_nothing_is_added_that_says_who_stands_between(endpoint: Any, proxy: Any) -> None:
    """Row 9: an endpoint that looks at its callers sees no others than without us."""
    wire = await proxy.ask("/v1/messages?beta=true", messages.request(), headers="anthropic-version: 2023-06-01\r\n")
    await soon(wire.until(b"\r\n\r\n"))
    names = {name.lower() for name, _ in endpoint.seen[0].headers}
    assert names <= {b"host", b"content-length", b"accept-encoding", b"anthropic-version", b"connection"}


async def test_the_probe_of_the_base_url_is_answered_at_once(endpoint: Any, proxy: Any) -> None:
    """Row: "`HEAD /` probe": an answer without a body, and a connection that can still be used."""
    wire = await proxy.ask("/", method="HEAD")
    head = await soon(wire.until(b"\r\n\r\n"))
    assert int(head.split(b" ")[1]) < 500
    wire.writer.write(b"HEAD / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nGET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    assert await soon(wire.until(b"\r\n\r\n")) == head
    assert (await soon(wire.until(b"\r\n\r\n"))).startswith(b"HTTP/1.1 200")
    assert endpoint.seen == []


@pytest.mark.parametrize("path", ["/v1/models", "/v1/messages", "/v1/files/x"])
async def test_a_head_request_is_a_head_request_at_the_endpoint(endpoint: Any, proxy: Any, path: str) -> None:
    """Row: "`HEAD /` probe", elsewhere: its length is told, no body follows."""

    async def answer(exchange: Any) -> None:
        await exchange.start(200, JSON, ("content-length", "1234"), ("x-n", str(len(endpoint.seen))))

    endpoint.answer = answer
    wire = await proxy.connect()
    for number in (b"1", b"2"):
        wire.writer.write(b"HEAD %s HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" % path.encode())
        head = await soon(wire.until(b"\r\n\r\n"))
        assert b" 200 " in head.split(b"\r\n")[0]
        assert b"content-length: 1234" in head.lower()
        assert b"x-n: " + number in head
    assert [seen.method for seen in endpoint.seen] == ["HEAD", "HEAD"]


@pytest.mark.parametrize("status", [200, 404])
async def test_count_tokens_passes_and_is_no_turn(
    endpoint: Any, client: httpx.AsyncClient, turns: Any, status: int
) -> None:
    """Row: "`count_tokens`", where the endpoint has it and where it has not."""
    body = b'{"input_tokens": 14 }\n' if status == 200 else b'{"type":"error","error":{"type":"not_found_error"}}'
    endpoint.answer = says(body, JSON, ("request-id", "req_1"), status=status)
    asked = messages.request(stream=False)
    got = await fetch(client, "/v1/messages/count_tokens?beta=true", asked)
    assert (got.status, got.body, got.header("request-id")) == (status, body, ["req_1"])
    assert (endpoint.seen[0].path, endpoint.seen[0].body) == ("/v1/messages/count_tokens?beta=true", asked)
    assert turns() == []


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_an_error_of_ours_has_the_shape_that_its_client_reads(
    endpoint: Any, client: httpx.AsyncClient, path: str
) -> None:
    """Row 4, for this API: a broken connection to the endpoint is told as the Messages API tells errors."""

    async def answer(exchange: Any) -> None:
        exchange.wire.cut()

    endpoint.answer = answer
    response = await client.post(path, content=messages.request())
    assert response.status_code == 502
    assert response.json()["type"] == "error"
    assert set(response.json()["error"]) >= {"type", "message"}
