"""Paths, headers and keys: what goes through, what stays here, what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
import websockets

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_every_other_path_passes_with_its_method_query_and_body(
    endpoint: Any, client: httpx.AsyncClient, method: str
) -> None:
    response = await client.request(method, "/v1/files/a%2Fb%20c?x=1&y=%26&x=2", content=b"\0\xff")
    assert response.json() == {"hello": 1}
    assert (endpoint.seen[0].method, endpoint.seen[0].path) == (method, "/v1/files/a%2Fb%20c?x=1&y=%26&x=2")
    assert endpoint.seen[0].body == b"\0\xff"


async def test_a_get_has_no_body_and_no_content_type(endpoint: Any, client: httpx.AsyncClient) -> None:
    await client.get("/v1/models")
    assert endpoint.seen[0].header(b"content-type") == []
    assert endpoint.seen[0].header(b"content-length") in ([], [b"0"])


async def test_a_head_keeps_its_content_length_and_the_connection(endpoint: Any, proxy: Any) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.start(200, ("content-length", "1234"))

    endpoint.answer = answer
    wire = await proxy.ask("/v1/models", method="HEAD")
    assert b"content-length: 1234\r\n" in await wire.until(b"\r\n\r\n")
    wire.writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert b"200 OK" in await wire.until(b"\r\n\r\n")


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_stays_without(endpoint: Any, proxy: Any, status: int) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.start(status, ("etag", '"1"'))

    endpoint.answer = answer
    wire = await proxy.ask("/v1/files/x", method="DELETE")
    head = await wire.until(b"\r\n\r\n")
    assert f"HTTP/1.1 {status}".encode() in head
    assert b'etag: "1"' in head
    assert b"transfer-encoding" not in head
    wire.writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (await wire.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")


async def test_a_redirect_is_the_agents_to_follow(endpoint: Any, client: httpx.AsyncClient) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.whole(b"", 307, ("location", "http://elsewhere/v1/x"))

    endpoint.answer = answer
    response = await client.post("/v1/x", content=b"{}")
    assert (response.status_code, response.headers["location"]) == (307, "http://elsewhere/v1/x")
    assert len(endpoint.seen) == 1


async def test_hop_by_hop_headers_stay_and_repeated_ones_are_kept_both_ways(endpoint: Any, proxy: Any) -> None:
    async def answer(exchange: Any) -> None:
        hop = [("connection", "x-one-hop"), ("x-one-hop", "1"), ("keep-alive", "timeout=5"), ("trailer", "x")]
        await exchange.whole(b"{}", 200, *hop, ("set-cookie", "a=1"), ("Set-Cookie", "b=2"), ("vary", "x"))

    endpoint.answer = answer
    hops = "connection: keep-alive, x-mine\r\nx-mine: 1\r\nte: trailers\r\nproxy-authorization: Basic x\r\n"
    wire = await proxy.ask("/v1/x", b"{}", headers=f"{hops}x-two: a\r\nx-two: b\r\ncookie: c=3\r\n")
    head = await wire.until(b"\r\n\r\n")
    for gone in (b"x-one-hop", b"keep-alive: timeout", b"trailer:"):
        assert gone not in head
    assert (head.count(b"set-cookie: "), head.count(b"vary: x\r\n")) == (2, 1)
    seen = endpoint.seen[0]
    assert [seen.header(name) for name in (b"x-mine", b"te", b"proxy-authorization")] == [[], [], []]
    assert (seen.header(b"x-two"), seen.header(b"cookie")) == ([b"a", b"b"], [b"c=3"])


async def test_a_header_that_is_no_ascii_keeps_its_bytes_both_ways(endpoint: Any, proxy: Any) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.whole(b"{}", 200, ("x-name", "Z\u00fcrich"))

    endpoint.answer = answer
    wire = await proxy.ask("/v1/x", b"{}", headers="x-city: K\u00f6ln\r\n")
    assert b"x-name: Z\xfcrich\r\n" in await wire.until(b"\r\n\r\n")
    assert endpoint.seen[0].header(b"x-city") == [b"K\xf6ln"]


async def test_our_own_headers_do_not_reach_the_endpoint(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes]
) -> None:
    ours = {"x-agentspec-session": "s", "X-AgentSpec-Runtime": "r", "x-agentspec-scope": "u", "x-other": "1"}
    await client.post(CHAT, content=chat(), headers=ours)
    await client.post("/v1/embeddings", content=chat(), headers=ours)
    for seen in endpoint.seen:
        assert [name for name, _ in seen.headers if name.lower().startswith(b"x-agentspec")] == []
        assert seen.header(b"x-other") == [b"1"]
        assert seen.header(b"host") == [endpoint.url.split("/")[2].encode()]


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
async def test_the_agents_key_goes_through(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes], path: str
) -> None:
    await client.post(path, content=chat(), headers={"authorization": "Bearer sk-agent"})
    assert endpoint.seen[0].header(b"authorization") == [b"Bearer sk-agent"]


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
@pytest.mark.parametrize("key", ["sk-secret", "sk-secret\n"])
async def test_the_endpoints_key_replaces_the_agents_and_is_never_told(
    endpoint: Any,
    start_proxy: Any,
    chat: Callable[..., bytes],
    path: str,
    key: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(exchange: Any) -> None:
        if len(endpoint.seen) > 1:
            exchange.wire.cut()
        else:
            await exchange.whole(b"{}")

    endpoint.answer = answer
    with caplog.at_level(logging.INFO):
        proxy = start_proxy(endpoint.url, upstream_key=key)
        async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
            told = [await client.post(path, content=chat(), headers={"authorization": "Bearer a"}) for _ in range(2)]
            told.append(await client.get("/agentspec/status"))
    assert [answer.status_code for answer in told] == [200, 502, 200]
    seen = [exchange.header(b"authorization") for exchange in endpoint.seen]
    assert seen == [[b"Bearer sk-secret"]] * 3  # the second went out twice: its kept connection was cut
    assert "sk-secret" not in caplog.text + "".join(str(answer.headers) + answer.text for answer in told)


async def test_a_password_in_the_endpoints_url_is_not_told(
    endpoint: Any, start_proxy: Any, chat: Callable[..., bytes]
) -> None:
    from agentspec.errors import ConfigError

    try:
        proxy = start_proxy(endpoint.url.replace("//", "//user:hush@"))
    except ConfigError as refused:
        assert "hush" not in str(refused)
        return
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        response = await client.post(CHAT, content=chat(), headers={"authorization": "Bearer a"})
    assert response.status_code == 200, response.text
    assert "hush" not in response.text


async def test_two_agents_do_not_share_cookies(endpoint: Any, proxy: Any, chat: Callable[..., bytes]) -> None:
    async def answer(exchange: Any) -> None:
        await exchange.whole(b"{}", 200, ("set-cookie", "who=first; Path=/"))

    endpoint.answer = answer
    for _ in range(2):
        async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
            assert "who=first" in (await client.post(CHAT, content=chat())).headers["set-cookie"]
    assert [seen.header(b"cookie") for seen in endpoint.seen] == [[], []]


async def test_broken_json_is_refused_before_the_endpoint_hears_of_it(endpoint: Any, proxy: Any) -> None:
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.post("/chat/completions", cast_to=object, content=b'{"model": "m", "messages": [}')
    assert (caught.value.code, caught.value.type) == ("invalid_json", "invalid_request_error")
    assert endpoint.seen == []


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"1",
        b"null",
        b"{}",
        b'{"model":1,"messages":[]}',
        b'{"model":"m","messages":{"a":1}}',
        b'{"messages":[1]}',
    ],
)
async def test_json_of_another_shape_is_the_endpoints_to_judge(
    endpoint: Any, client: httpx.AsyncClient, body: bytes
) -> None:
    assert (await client.post(CHAT, content=body)).status_code == 200
    assert endpoint.seen[0].body == body


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "custom"}, {"type": "function", "function": None}, {"function": {"name": 1}}]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]},
        {"messages": [{"role": "user"}, {"content": 1}, {}, {"role": "assistant", "tool_calls": "x"}]},
        {"messages": [{"role": "assistant", "tool_calls": [1, {}, {"function": 1}, {"function": {"name": None}}]}]},
        {"messages": []},
    ],
)
async def test_odd_messages_and_tools_pass(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes], more: dict[str, Any]
) -> None:
    assert (await client.post(CHAT, content=chat(**more))).status_code == 200
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize("path", [CHAT, "/v1/files"])
async def test_a_body_that_is_too_large_is_refused(endpoint: Any, start_proxy: Any, path: str) -> None:
    proxy = start_proxy(endpoint.url, max_body_bytes=1000)
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        response = await client.post(path, content=b"x" * 1001)
        assert (await client.post("/v1/files", content=b"x" * 1000)).status_code == 200
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")
    assert "max_body_bytes" in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/", "/chat/completions", "/v1", "/v2/models", "/r/x", "/v1x/models", "/%ff"])
async def test_an_unknown_path_is_a_404_with_a_hint(client: httpx.AsyncClient, path: str) -> None:
    response = await client.post(path, content=b"{}")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    assert "base_url" in response.json()["error"]["message"]


@pytest.mark.parametrize("runtime", ["unknown", "v1abcdefghijklmnopqrstuvw", "a-v1"])
@pytest.mark.parametrize("path", ["/models?x=1", "/chat/completions"])
async def test_a_runtime_in_the_path_is_taken_off_even_where_it_is_unknown(
    endpoint: Any, client: httpx.AsyncClient, chat: Callable[..., bytes], runtime: str, path: str
) -> None:
    response = await client.post(f"/r/{runtime}/v1{path}", content=chat())
    assert response.status_code == 200, response.text
    assert endpoint.seen[0].path == f"/v1{path}"


async def test_health_and_status_answer_without_the_endpoint(endpoint: Any, client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    status = (await client.get("/agentspec/status")).json()
    assert set(status["outcomes"].values()) == {0}
    assert (status["faults"], status["runtimes"], endpoint.seen) == ({}, 0, [])


@pytest.mark.parametrize("path", ["/", "/v1/realtime", "/agentspec/channel/x"])
async def test_a_websocket_elsewhere_is_refused(proxy: Any, path: str) -> None:
    with pytest.raises(websockets.InvalidStatus) as caught:
        await websockets.connect(proxy.url.replace("http", "ws") + path)
    assert caught.value.response.status_code == 426
    assert b"websocket_not_supported" in caught.value.response.body


@pytest.mark.parametrize("more", ["host: evil.example\r\n", "host: 127.0.0.1\r\norigin: http://evil.example\r\n"])
async def test_a_browser_page_may_not_open_the_channel(proxy: Any, more: str) -> None:
    wire = await proxy.connect()
    upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    wire.writer.write(f"GET /agentspec/channel HTTP/1.1\r\n{more}{upgrade}{key}\r\n".encode())
    assert b" 403 " in await wire.until(b"\r\n")


async def test_a_body_sent_in_chunks_or_after_a_100_continue_arrives_whole(endpoint: Any, proxy: Any) -> None:
    wire = await proxy.ask("/v1/x", method="POST", headers="transfer-encoding: chunked\r\nexpect: 100-continue\r\n")
    assert b" 100 " in await wire.until(b"\r\n\r\n")
    wire.writer.write(b"3\r\n{  \r\n1\r\n}\r\n0\r\n\r\n")
    assert b" 200 " in await wire.until(b"\r\n\r\n")
    assert endpoint.seen[0].body == b"{  }"
    assert endpoint.seen[0].header(b"content-length") == [b"4"]
    assert endpoint.seen[0].header(b"transfer-encoding") == endpoint.seen[0].header(b"expect") == []
