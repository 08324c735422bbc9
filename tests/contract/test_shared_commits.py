"""What is committed in one process of a tenant is a write for its others, and theirs make it stale."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

import pytest

import agentspec
from agentspec.tools_sandbox.capabilities import missing_tiers
from agentspec.tools_sandbox.shared import SharedDomains
from tests.contract import importable as tools
from tests.contract.other_agents import OtherAgent
from tests.contract.redis_servers import REDIS, away, forget
from tests.contract.sandboxed import Scene
from tests.contract.workspaces import lines, over, prepare

pytestmark = [
    pytest.mark.skipif(away(REDIS), reason=f"no Redis at {REDIS}"),
    pytest.mark.skipif("T2" in missing_tiers(), reason=f"T2: {missing_tiers().get('T2')}"),
]

ORDERS = frozenset({"orders"})


@pytest.fixture(autouse=True)
def _workspace(tmp_path, monkeypatch) -> None:
    prepare(tmp_path, monkeypatch)


@pytest.fixture
def tenant() -> Any:
    """An API key of the test's own; what it left in Redis is removed."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    forget(REDIS, name)


@pytest.fixture
def scene(endpoint, start, agent_of, cleanup, tenant):
    """scene(*tools): this process shares its writes."""

    def join(proxy: Any, *tools: Any) -> Any:
        runtime = agentspec.connect(proxy.url, tools=tools, api_key=tenant, redis=REDIS, wait_s=5.0)
        cleanup.callback(runtime.close)
        return runtime

    return partial(Scene, endpoint, start, join, agent_of)


@pytest.fixture
def other(cleanup, tenant):
    """other(made): another agent of the tenant. It starts in the folder where the tests are."""

    agent = OtherAgent()
    cleanup.callback(agent.close)

    def joined(made: Scene) -> OtherAgent:
        agent.join(made.proxy.url, tenant, REDIS)
        return agent

    return joined


def test_a_run_that_is_committed_here_is_a_write_elsewhere(scene, tenant, cleanup):
    elsewhere = SharedDomains(REDIS, tenant)
    cleanup.callback(elsewhere.close)
    made = scene(over(tools.add_line, reads={"orders"}, writes={"orders"}))
    before = elsewhere.stamp(ORDERS)
    agent, calls = made.asked("add_line", text="A")
    assert elsewhere.unchanged(ORDERS, before), "it has run, and nothing has happened yet"
    agent.act(calls)
    assert made.outcomes == ["hit"]
    assert not elsewhere.unchanged(ORDERS, before)
    assert elsewhere.unchanged(ORDERS, elsewhere.stamp(ORDERS)), "it is over"


def test_a_write_elsewhere_makes_a_run_that_waits_for_its_commit_stale(scene, other):
    made = scene(over(tools.add_line, reads={"orders"}, writes={"orders"}))
    agent, calls = made.asked("add_line", text="A")
    other(made).write("write_orders")
    agent.act(calls)
    assert made.outcomes == ["stale"]
    assert lines() == ["A"]
