"""Who may come in: keys of the proxy's own, names and pages that it answers to, heads that are too large."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import anthropic
import httpx
import openai
import pytest
import websockets

from agentspec import channel
from agentspec.proxy.doors import hash_of, new_key

pytestmark = pytest.mark.anyio

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COUNT, EMBED = "/v1/messages/count_tokens", "/v1/embeddings"
PATHS = [CHAT, RESPONSES, MESSAGES, COUNT, EMBED]
KEY, ANOTHER = new_key(), new_key()
KEYS = [{"tenant": "acme", "sha256": hash_of(KEY).hex()}, {"tenant": "other", "sha256": hash_of(ANOTHER).hex()}]
BODY = json.dumps({"model": "m", "messages": [], "input": "x"}).encode()


def code_of(answer: httpx.Response, path: str) -> str:
    """The stable code of an error in its API's shape."""
    body = answer.json()
    assert isinstance(body["error"]["message"], str)
    if path.startswith(MESSAGES):
        assert body["type"] == "error"
    else:
        assert {"message", "type", "param", "code"} == set(body["error"])
    return body["error"]["code"]


@pytest.fixture
async def client_of() -> AsyncIterator[Any]:
    """client_of(proxy): an HTTP client."""
    async with AsyncExitStack() as stack:

        async def made(proxy: Any) -> httpx.AsyncClient:
            client = httpx.AsyncClient(base_url=proxy.url, trust_env=False, timeout=20)
            return await stack.enter_async_context(client)

        yield made


@pytest.fixture
async def kept(endpoint: Any, start_proxy: Any, client_of: Any) -> httpx.AsyncClient:
    """A client of a proxy with keys."""
    return await client_of(start_proxy(endpoint.url, keys=KEYS))


WRONG: dict[str, dict[str, str]] = {
    "none": {},
    "an empty bearer": {"authorization": "Bearer"},
    "a wrong bearer": {"authorization": "Bearer ask-wrong"},
    "a wrong x-api-key": {"x-api-key": "ask-wrong"},
    "half a key": {"authorization": f"Bearer {KEY[:-1]}"},
    "its hash": {"authorization": f"Bearer {hash_of(KEY).hex()}"},
    "another scheme": {"authorization": f"Basic {KEY}"},
    "a key in a cookie": {"cookie": f"authorization={KEY}"},
    "not latin": {"authorization": "Bearer \u00fc\u00df"},
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_without_a_key_of_ours_nothing_is_asked(endpoint: Any, kept: httpx.AsyncClient, wrong: str) -> None:
    headers = {name: value.encode("latin-1") for name, value in WRONG[wrong].items()}
    for path in PATHS:
        answer = await kept.post(path, content=BODY, headers=headers)
        assert (answer.status_code, code_of(answer, path)) == (401, "invalid_api_key")
    assert endpoint.seen == []


async def test_the_sdks_see_an_authentication_error(kept: httpx.AsyncClient) -> None:
    url = str(kept.base_url).rstrip("/")
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            await client.responses.create(model="m", input="x")
        assert refused.value.code == "invalid_api_key"
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as other:
        with pytest.raises(anthropic.AuthenticationError) as told:
            await other.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}])
        assert "authentication_error" in str(told.value.body)


SHOWN: dict[str, dict[str, str]] = {
    "bearer": {"authorization": f"Bearer {KEY}"},
    "in lower case, with spaces": {"authorization": f"bearer   {KEY}"},
    "x-api-key": {"x-api-key": KEY},
    "x-api-key beside another vendor's bearer": {"x-api-key": KEY, "authorization": "Bearer sk-elsewhere"},
}


@pytest.mark.parametrize("shown", SHOWN)
async def test_a_key_is_taken_in_either_header_and_goes_no_further(
    endpoint: Any, kept: httpx.AsyncClient, shown: str
) -> None:
    for path in PATHS:
        assert (await kept.post(path, content=BODY, headers=SHOWN[shown])).status_code == 200
        seen = endpoint.seen.pop()
        assert seen.header(b"authorization") == seen.header(b"x-api-key") == []
        assert KEY.encode() not in b"".join(value for _, value in seen.headers) + seen.body


@pytest.mark.parametrize("path", ["/agentspec/status", "/v1/models", "/"])
async def test_what_tells_something_needs_a_key_as_well(kept: httpx.AsyncClient, path: str) -> None:
    assert (await kept.get(path)).status_code == 401
    assert (await kept.get(path, headers={"x-api-key": KEY})).status_code == 200


async def test_whether_it_is_alive_needs_none(kept: httpx.AsyncClient) -> None:
    assert (await kept.get("/healthz")).json() == {"status": "ok"}


def hello(runtime: str) -> str:
    return channel.encode(channel.Hello(runtime, []))


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer ask-wrong"}, {"x-api-key": "ask-wrong"}])
async def test_the_channel_needs_a_key_too(endpoint: Any, start_proxy: Any, headers: dict[str, str]) -> None:
    url = start_proxy(endpoint.url, keys=KEYS).url.replace("http", "ws") + channel.PATH
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(url, additional_headers=headers, proxy=None)
    assert refused.value.response.status_code in (401, 403)
    async with websockets.connect(url, additional_headers={"authorization": f"Bearer {KEY}"}, proxy=None) as channel_:
        await channel_.send(hello("x" * 32))
        assert isinstance(channel.decode_from_proxy(await channel_.recv()), channel.Welcome)


@pytest.mark.parametrize("break_off", [False, True])
async def test_no_key_is_ever_in_the_log(
    endpoint: Any, start_proxy: Any, client_of: Any, caplog: pytest.LogCaptureFixture, break_off: bool
) -> None:
    async def answer(exchange: Any) -> None:
        if break_off:
            exchange.wire.cut()
        else:
            await exchange.whole(b'{"error": {"message": "no such key"}}', 401)

    endpoint.answer = answer
    caplog.set_level(logging.DEBUG)
    for noisy in ("uvicorn.error", "websockets", "httpcore", "httpx"):  # quiet in the command as well
        logging.getLogger(noisy).setLevel(logging.ERROR)
    client = await client_of(start_proxy(endpoint.url, keys=KEYS, upstream_key="sk-upstream"))
    for shown in ({"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}, {"x-api-key": "ask-wrong"}):
        for path in (*PATHS, "/nowhere"):
            await client.post(path, content=BODY, headers=shown)
            await client.post(path, content=b"{", headers=shown)
    told = caplog.text + "".join(repr(record.__dict__) for record in caplog.records)
    assert [key for key in (KEY, "ask-wrong", "sk-upstream") if key in told] == []


# Names and pages

Head = dict[str, str]
FOREIGN_HOSTS = ["evil.example", "evil.example:8787", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", ""]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
async def test_a_borrowed_name_is_not_answered_to(endpoint: Any, client: Any, host: str) -> None:
    """DNS rebinding: the page's own name points at this machine."""
    for path in (*PATHS, "/agentspec/status"):
        answer = await client.post(path, content=BODY, headers={"host": host})
        assert (answer.status_code, code_of(answer, path)) == (403, "forbidden")
    assert endpoint.seen == []


async def test_this_machines_own_names_are_answered_to(client: Any) -> None:
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:99", "[::1]", "[::1]:8787"):
        assert (await client.post(CHAT, content=BODY, headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("proxy.corp", 200), ("PROXY.corp:8443", 200), ("proxy.corp.evil", 403), ("other:9", 200), ("other:8", 403)],
)
async def test_allowed_hosts_are_answered_to(
    endpoint: Any, start_proxy: Any, client_of: Any, host: str, status: int
) -> None:
    client = await client_of(start_proxy(endpoint.url, allowed_hosts=["Proxy.corp", "other:9"]))
    assert (await client.post(CHAT, content=BODY, headers={"host": host})).status_code == status
    assert (await client.post(CHAT, content=BODY)).status_code == 200, "its own names are answered to all the same"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        *(("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:1", 403), ("file://", 403)),
        *(("https://desk.corp", 200), ("HTTPS://desk.corp/", 200), ("https://desk.corp:444", 403)),
        ("https://desk.corp.evil", 403),
    ],
)
async def test_only_allowed_pages_may_ask(
    endpoint: Any, start_proxy: Any, client_of: Any, origin: str, status: int
) -> None:
    client = await client_of(start_proxy(endpoint.url, allowed_origins=["https://desk.corp/"]))
    answer = await client.post(MESSAGES, content=BODY, headers={"origin": origin})
    assert answer.status_code == status
    assert len(endpoint.seen) == (status == 200)


async def test_a_page_of_the_same_origin_may_ask(client: Any) -> None:
    own = str(client.base_url).rstrip("/")
    assert (await client.post(CHAT, content=BODY, headers={"origin": own})).status_code == 200


async def test_no_page_opens_the_channel_not_even_an_allowed_one(endpoint: Any, start_proxy: Any) -> None:
    proxy = start_proxy(endpoint.url, allowed_origins=["https://desk.corp"])
    for origin in ("https://desk.corp", proxy.url):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(proxy.url.replace("http", "ws") + channel.PATH, origin=origin, proxy=None)
        assert refused.value.response.status_code == 403


# Heads


async def test_a_head_that_is_too_large_is_refused(endpoint: Any, start_proxy: Any, client_of: Any) -> None:
    client = await client_of(start_proxy(endpoint.url, max_header_bytes=4000))
    for path in PATHS:
        answer = await client.post(path, content=BODY, headers={"x-padding": "x" * 4000})
        assert (answer.status_code, code_of(answer, path)) == (431, "headers_too_large")
        assert "max_header_bytes" in answer.json()["error"]["message"]
    assert (await client.post(CHAT, content=BODY, headers={"x-padding": "x" * 3000})).status_code == 200
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize("limit", [2000, 2**16])
async def test_a_head_without_an_end_is_refused(endpoint: Any, start_proxy: Any, limit: int) -> None:
    proxy = start_proxy(endpoint.url, max_header_bytes=limit)
    wire = await proxy.connect()
    wire.writer.write(b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\n")
    for number in range(limit // 900 + 2):
        if wire.gone.is_set() or wire.data:
            break
        wire.writer.write(b"x-%d: %s\r\n" % (number, b"y" * 900))
        await wire.writer.drain()
    told = await wire.rest()
    assert told.startswith(b"HTTP/1.1 431 ")
    assert b"headers_too_large" in told


async def test_a_large_body_is_no_large_head(endpoint: Any, start_proxy: Any, client_of: Any) -> None:
    client = await client_of(start_proxy(endpoint.url, max_header_bytes=2000))
    for size in (10, 1990, 2000, 70_000, 1_000_000):
        assert (await client.post(EMBED, content=b"x" * size)).status_code == 200
    assert [len(seen.body) for seen in endpoint.seen] == [10, 1990, 2000, 70_000, 1_000_000]
