"""The versions in Redis against a model of them, with writes and reads of several processes in any order."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from agentspec.effects import EVERYTHING, overlap
from agentspec.errors import ToolRefused
from agentspec.tools_sandbox.shared import SharedDomains
from tests.contract.redis_servers import REDIS, away, forget

pytestmark = pytest.mark.skipif(away(REDIS), reason=f"no Redis at {REDIS}")

PROCESSES = 3
DOMAINS = st.frozensets(st.sampled_from(["orders", "users", "order:1", "order:2", EVERYTHING]), max_size=3)
WRITTEN = DOMAINS.filter(bool)


class Write:
    """A write of the model: what it touches, and when it began and ended, in the machine's own order of events."""

    def __init__(self, domains: frozenset[str], began: int) -> None:
        self.domains = domains
        self.began = began
        self.ended: int | None = None

    def goes_on_or_went_on_after(self, moment: int) -> bool:
        return self.ended is None or self.ended > moment


class SharedDomainsMachine(RuleBasedStateMachine):
    """Whatever the interleaving: a read is good exactly if no overlapping write was going on since it started."""

    reads = Bundle("reads")
    writes = Bundle("writes")

    def __init__(self) -> None:
        super().__init__()
        tenant = uuid.uuid4().hex
        self.tenants = [f"test-{tenant}", f"test-{tenant}-other"]
        self.processes = [[SharedDomains(REDIS, tenant) for _ in range(PROCESSES)] for tenant in self.tenants]
        self.written: tuple[list[Write], list[Write]] = ([], [])
        self.clock = itertools.count(1)
        self.now = 0

    def tick(self) -> int:
        self.now = next(self.clock)
        return self.now

    who = st.tuples(st.sampled_from([0, 0, 0, 1]), st.integers(0, PROCESSES - 1))

    def going_on(self, tenant: int, domains: frozenset[str]) -> bool:
        return any(write.ended is None and overlap(domains, write.domains) for write in self.written[tenant])

    @rule(target=writes, who=who, domains=WRITTEN)
    def begin(self, who: tuple[int, int], domains: frozenset[str]) -> Any:
        tenant, process = who
        write = Write(domains, self.tick())
        ticket = self.processes[tenant][process].begin_write(domains)
        self.written[tenant].append(write)
        return tenant, process, write, ticket

    @rule(begun=consumes(writes))
    def end(self, begun: Any) -> None:
        tenant, process, write, ticket = begun
        self.processes[tenant][process].end_write(ticket, write.domains)
        write.ended = self.tick()

    @rule(target=reads, who=who, domains=DOMAINS)
    def stamp(self, who: tuple[int, int], domains: frozenset[str]) -> Any:
        tenant, process = who
        shared = self.processes[tenant][process]
        if self.going_on(tenant, domains):
            with pytest.raises(ToolRefused):
                shared.stamp(domains)
            return multiple()
        return tenant, domains, shared.stamp(domains), self.tick()

    @rule(read=reads, process=st.integers(0, PROCESSES - 1))
    def claim(self, read: Any, process: int) -> None:
        tenant, domains, stamp, moment = read
        void = any(
            overlap(domains, write.domains) and write.goes_on_or_went_on_after(moment) for write in self.written[tenant]
        )
        assert self.processes[tenant][process].unchanged(domains, stamp) == (not void)

    @invariant()
    def what_depends_on_nothing_is_always_good(self) -> None:
        shared = self.processes[0][0]
        assert shared.unchanged(frozenset(), shared.stamp(frozenset()))

    def teardown(self) -> None:
        for shared in itertools.chain(*self.processes):
            shared.close()
        for tenant in self.tenants:
            forget(REDIS, tenant)


SharedDomainsMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink takes minutes, and a failure is readable as it is
    suppress_health_check=list(HealthCheck),
)
TestSharedDomains = pytest.mark.skipif(away(REDIS), reason=f"no Redis at {REDIS}")(SharedDomainsMachine.TestCase)
