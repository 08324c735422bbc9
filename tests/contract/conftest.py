"""One scripted endpoint for all tests; a proxy, runtimes and clients for each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

import agentspec
from agentspec.calls import ToolCall
from agentspec.tools_sandbox import handover
from agentspec.tools_sandbox.connect import Connection
from tests.contract.redis_servers import REDIS, forget
from tests.contract.sandboxed import Scene
from tests.contract.scripted import Endpoint, Gate, asks_for
from tests.contract.shop import GUESS, Shop
from tests.contract.support import Agent, EmbeddedProxy, Guesses, Proxy, undeclared
from tests.contract.workspaces import prepare


@pytest.fixture(scope="session")
def _endpoint() -> Iterator[Endpoint]:
    running = Endpoint()
    yield running
    running.stop()


@pytest.fixture(autouse=True, scope="session")
def _a_busy_machine_is_no_reason_for_a_miss() -> Iterator[None]:
    """Several test processes share two cores: the proxy's answer may take longer than a user would wait for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handover, "GRANT_LIMIT_S", 2.0)
        yield


@pytest.fixture
def endpoint(_endpoint: Endpoint) -> Endpoint:
    _endpoint.reset()
    return _endpoint


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    """How the engine is reached: "served" by a proxy, or "embedded" in this process (modules ask for both)."""
    return getattr(request, "param", "served")


@pytest.fixture
def start(endpoint: Endpoint, tmp_path: Path, cleanup: ExitStack, way: str) -> Callable[..., Proxy]:
    """start(*speculators, **settings): a proxy before the endpoint."""

    def started(*speculators: Any, **settings: Any) -> Proxy:
        kind = EmbeddedProxy if way == "embedded" else Proxy
        proxy = kind(endpoint.url, f"sqlite:///{tmp_path / 'ledger.sqlite3'}", speculators, **settings)
        cleanup.callback(proxy.stop)
        return proxy

    return started


@pytest.fixture
def join(cleanup: ExitStack) -> Callable[..., Connection]:
    """join(proxy, *tools): this process as a runtime with these tools."""

    def joined(proxy: Proxy, *tools: Any) -> Connection:
        runtime = proxy.join(tools)
        cleanup.callback(runtime.close)
        assert runtime.connected
        return runtime

    return joined


@pytest.fixture
def client_of(cleanup: ExitStack) -> Callable[[Connection], openai.OpenAI]:
    def made(runtime: Connection) -> openai.OpenAI:
        client = openai.OpenAI(
            base_url=runtime.base_url, api_key="k", http_client=runtime.http_client(), max_retries=0, timeout=20
        )
        cleanup.callback(client.close)
        return client

    return made


@pytest.fixture
def agent_of(client_of: Callable[[Connection], openai.OpenAI]) -> Callable[..., Agent]:
    """agent_of(runtime, *tools): an agent that holds these tools and talks through this runtime."""
    return lambda runtime, *tools, **options: Agent(client_of(runtime), tools, **options)


@pytest.fixture
def ready(endpoint, start, join, agent_of):
    """ready(tool, gate): a proxy whose model has asked for get("A") after the gate; and the agent."""

    def made(tool: Any, gate: Gate) -> tuple[Any, Any]:
        guess = ToolCall("get", {"key": "A"})
        proxy = start(Guesses(lambda turn: [guess] if len(turn.history) == 1 else []))
        agent = agent_of(join(proxy, tool), tool)
        endpoint.answers(asks_for("get", {"key": "A"}, after=gate))
        assert agent.think()
        return proxy, agent

    return made


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def agent(start, join, agent_of, shop) -> Agent:
    """An agent of the shop whose first two calls are guessed, and its proxy as `agent.proxy`."""
    proxy = start(Guesses(GUESS, ToolCall("add", {"a": 1, "b": 2})))
    tools = [shop.get_order, shop.add, shop.close_order, shop.send_mail, shop.launch]
    runtime = join(proxy, *tools)
    found = agent_of(runtime, *tools)
    found.proxy, found.runtime = proxy, runtime
    undeclared(found, "cancel", shop.cancel)
    return found


# Tools that run ahead in other processes


@pytest.fixture
def scene(endpoint, start, join, agent_of) -> Callable[..., Scene]:
    """scene(*tools, **settings)"""
    return partial(Scene, endpoint, start, join, agent_of)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies of workspaces are kept; the working folder is the workspace."""
    return prepare(tmp_path, monkeypatch)


@pytest.fixture
def tenant() -> Iterator[str]:
    """An API key of the test's own; what it left in Redis is removed."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    forget(REDIS, name)


@pytest.fixture
def join_and_share(cleanup: ExitStack, tenant: str) -> Callable[..., Connection]:
    """The same as `join`, for a process that shares its writes with others of the tenant."""

    def joined(proxy: Any, *tools: Any) -> Connection:
        runtime = agentspec.connect(proxy.url, tools=tools, api_key=tenant, redis=REDIS, wait_s=5.0)
        cleanup.callback(runtime.close)
        return runtime

    return joined
