"""What is committed in one process of a tenant is a write for its others, and theirs make it stale."""

from __future__ import annotations

import pytest

from agentspec.tools_sandbox.capabilities import missing_tiers
from agentspec.tools_sandbox.shared import SharedDomains
from tests.contract import importable as tools
from tests.contract.other_agents import OtherAgent
from tests.contract.redis_servers import REDIS, away
from tests.contract.sandboxed import Scene
from tests.contract.workspaces import lines, over

pytestmark = [
    pytest.mark.skipif(away(REDIS), reason=f"no Redis at {REDIS}"),
    pytest.mark.skipif("T2" in missing_tiers(), reason=f"T2: {missing_tiers().get('T2')}"),
    pytest.mark.usefixtures("state"),
]

ORDERS = frozenset({"orders"})


@pytest.fixture
def join(join_and_share):
    """This process shares its writes."""
    return join_and_share


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
