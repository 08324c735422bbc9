"""Several endpoints: which of them a request goes to, and with whose key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentspec.config import load
from agentspec.errors import ConfigError

pytestmark = pytest.mark.anyio

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
PASSED = ["/v1/embeddings", "/v1/completions", "/v1/messages/count_tokens"]
ALL = [CHAT, RESPONSES, MESSAGES, *PASSED]
FILE = """
[[upstreams]]
url = "{claude}/v1"
kind = "anthropic"
models = ["claude-*"]
key_env = "TEST_CLAUDE_KEY"

[[upstreams]]
url = "{gpt}/v1/"
kind = "openai"
models = ["gpt-*", "o[0-9]*"]
key = "sk-gpt"

[[upstreams]]
url = "{own}/prefix/v1"
kind = "vllm"
models = ["Qwen/*", "claude-local"]
"""
KEYS = {"claude": [(b"x-api-key", b"sk-claude")], "gpt": [(b"authorization", b"Bearer sk-gpt")]}


def body(model: str | None, **more: Any) -> bytes:
    named = {"model": model} if model is not None else {}
    return json.dumps({**named, "messages": [], "input": "x", "prompt": "x", "max_tokens": 1, **more}).encode()


@pytest.fixture
async def endpoints(endpoint: Any) -> AsyncIterator[dict[str, Any]]:
    """Four endpoints by name."""
    made, servers = {}, []
    for name in ("claude", "gpt", "own", "default"):
        made[name] = type(endpoint)(endpoint.answer)
        servers.append(await asyncio.start_server(made[name].serve, "127.0.0.1", 0))
        made[name].url = f"http://127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}"
    yield made
    for server, one in zip(servers, made.values(), strict=True):
        for wire in list(one.open):
            wire.cut()
        server.close()


@pytest.fixture
async def client(
    endpoints: dict[str, Any], start_proxy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a proxy with the file above; with a default endpoint where a test asks for one."""
    (tmp_path / "some.toml").write_text(FILE.format(**{name: one.url for name, one in endpoints.items()}))
    monkeypatch.setenv("AGENTSPEC_CONFIG", str(tmp_path / "some.toml"))
    monkeypatch.setenv("TEST_CLAUDE_KEY", "sk-claude\n")
    fallback = getattr(request, "param", None)
    proxy = start_proxy(f"{endpoints['default'].url}/v1" if fallback else "")
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False, timeout=20) as made:
        yield made


WITH_DEFAULT = pytest.mark.parametrize("client", [True], indirect=True, ids=["with a default"])


def asked(endpoints: dict[str, Any]) -> dict[str, int]:
    return {name: len(one.seen) for name, one in endpoints.items() if one.seen}


@pytest.mark.parametrize(
    ("model", "name"),
    [("claude-5", "claude"), ("gpt-9", "gpt"), ("o3-x", "gpt"), ("Qwen/Q", "own"), ("claude-local", "claude")],
)
async def test_a_model_goes_to_its_endpoint_whatever_the_path(
    endpoints: dict[str, Any], client: httpx.AsyncClient, model: str, name: str
) -> None:
    for path in ALL:
        assert (await client.post(path, content=body(model))).status_code == 200
    assert asked(endpoints) == {name: len(ALL)}
    prefix = "/prefix" if name == "own" else ""
    assert [seen.path for seen in endpoints[name].seen] == [f"{prefix}{path}" for path in ALL]


@pytest.mark.parametrize("name", ["claude", "gpt"])
async def test_each_endpoint_gets_its_own_key_and_no_other(
    endpoints: dict[str, Any], client: httpx.AsyncClient, name: str
) -> None:
    model = {"claude": "claude-5", "gpt": "gpt-9"}[name]
    for shown in ({"authorization": "Bearer sk-agent"}, {"x-api-key": "sk-agent"}):
        for path in ALL:
            await client.post(path, content=body(model), headers=shown)
    for seen in endpoints[name].seen:
        assert [pair for pair in seen.headers if pair[0] in (b"authorization", b"x-api-key")] == KEYS[name]
        assert b"sk-agent" not in b"".join(value for _, value in seen.headers)


async def test_an_endpoint_without_a_key_gets_the_agents_and_not_a_neighbours(
    endpoints: dict[str, Any], client: httpx.AsyncClient
) -> None:
    for path in ALL:
        await client.post(path, content=body("Qwen/Q"), headers={"authorization": "Bearer sk-agent"})
    for seen in endpoints["own"].seen:
        assert seen.header(b"authorization") == [b"Bearer sk-agent"]
        assert seen.header(b"x-api-key") == []


async def test_a_model_that_nobody_serves_is_told_in_each_apis_shape(
    endpoints: dict[str, Any], client: httpx.AsyncClient
) -> None:
    for path in ALL:
        answer = await client.post(path, content=body("mistral-x"))
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "model_not_found"), path
        assert "'mistral-x'" in error["message"]
        assert (error["type"] == "not_found_error") == path.startswith(MESSAGES)
    assert asked(endpoints) == {}


@WITH_DEFAULT
async def test_the_default_endpoint_serves_what_nobody_else_does(
    endpoints: dict[str, Any], client: httpx.AsyncClient
) -> None:
    for path in ALL:
        await client.post(path, content=body("mistral-x"), headers={"authorization": "Bearer sk-agent"})
        await client.post(path, content=body("gpt-9"))
    assert asked(endpoints) == {"gpt": len(ALL), "default": len(ALL)}
    assert {seen.header(b"authorization")[0] for seen in endpoints["default"].seen} == {b"Bearer sk-agent"}


async def test_without_a_model_the_path_tells_the_api(endpoints: dict[str, Any], client: httpx.AsyncClient) -> None:
    await client.post("/v1/messages/batches", content=body(None))
    assert asked(endpoints) == {"claude": 1}
    await client.get("/v1/models")
    assert asked(endpoints) == {"claude": 1, "own": 1}


ODD_BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": {"a": 1}},
    RESPONSES: {"background": "yes"},
    MESSAGES: {"messages": "x"},
}


@pytest.mark.parametrize("path", ODD_BODIES)
async def test_a_request_of_another_shape_is_for_its_models_endpoint_to_judge(
    endpoints: dict[str, Any], client: httpx.AsyncClient, path: str
) -> None:
    name, model = ("gpt", "gpt-9") if path == MESSAGES else ("claude", "claude-5")
    await client.post(path, content=body(model, **ODD_BODIES[path]))
    assert asked(endpoints) == {name: 1}


async def test_one_endpoint_alone_serves_only_its_own_models(endpoints: dict[str, Any], start_proxy: Any) -> None:
    only = {"url": f"{endpoints['claude'].url}/v1", "kind": "anthropic", "models": ["claude-*"], "key": "sk-claude"}
    proxy = start_proxy("", upstreams=[only])
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        assert (await client.post(MESSAGES, content=body("claude-5"))).status_code == 200
        assert (await client.post(MESSAGES, content=body("gpt-9"))).status_code == 404
    assert asked(endpoints) == {"claude": 1}


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ('[[upstreams]]\nurl = "http://h/v1"\nmodels = []\n', "needs the models"),
        ('[[upstreams]]\nurl = "http://h/v1"\n', "upstreams.0.models"),
        ('[[upstreams]]\nurl = "h/v1"\nmodels = ["*"]\n', "is no URL"),
        ('[[upstreams]]\nurl = "http://u:hush@h/v1"\nmodels = ["*"]\n', "must hold no password"),
        ('[[upstreams]]\nurl = "http://h/v1"\nmodels = ["*"]\nkey_env = "TEST_NO_SUCH"\n', "TEST_NO_SUCH"),
        ('[[upstreams]]\nurl = "http://h/v1"\nmodels = ["*"]\nkey = "hush\\u0007"\n', "control characters"),
        ('[[upstreams]]\nurl = "http://h/v1"\nmodels = ["*"]\nkind = "gpt"\n', "upstreams.0.kind"),
        ('[[upstreams]]\nurl = "http://h/v1"\nmodels = ["*"]\nmodel = "x"\n', "there is no such setting"),
    ],
)
def test_an_endpoint_that_does_not_fit_is_named(tmp_path: Path, file: str, told: str) -> None:
    (tmp_path / "x.toml").write_text(file)
    with pytest.raises(ConfigError) as refused:
        load({}, tmp_path / "x.toml")
    assert told in str(refused.value)
    assert "hush" not in str(refused.value)
