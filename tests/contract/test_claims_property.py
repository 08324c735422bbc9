"""Claims, writes and crashes in an order that Hypothesis chooses and shrinks; world and judge are the bench's."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentspec.proxy.bench.claims.drive import Drive
from agentspec.proxy.bench.claims.seams import driven

chances = st.integers(0, 2**32 - 1)


class Claims(RuleBasedStateMachine):
    """Each rule is a step of the bench's driver; what it leaves to chance is drawn too."""

    def __init__(self) -> None:
        super().__init__()
        self.drive = Drive(0)
        self.seams = ExitStack()
        self.seams.enter_context(driven(self.drive.fibers))

    def take(self, name: str, chance: int) -> None:
        self.drive.random.setstate(Random(chance).getstate())
        self.drive.act(name)

    @initialize(chance=chances)
    def begin(self, chance: int) -> None:
        self.drive.random.setstate(Random(chance).getstate())
        self.drive.begin()

    @rule(chance=chances, calls=st.integers(1, 3))
    def order_and_call(self, chance: int, calls: int) -> None:
        self.take("order", chance)
        for _ in range(calls):
            self.drive.act("deliver")
            self.drive.act("go on")
        self.drive.act("call")

    @rule(chance=chances)
    def call(self, chance: int) -> None:
        self.take("call", chance)

    @rule(chance=chances, times=st.integers(1, 12))
    def go_on(self, chance: int, times: int) -> None:
        self.drive.random.setstate(Random(chance).getstate())
        for _ in range(times):
            self.drive.step()

    @rule(chance=chances, name=st.sampled_from(Drive(0).names))
    def anything(self, chance: int, name: str) -> None:
        self.take(name, chance)

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert self.drive.record.wrong == [], [str(entry) for entry in self.drive.record.trail]

    def teardown(self) -> None:
        try:
            self.drive.drain()
            self.nothing_is_wrong()
        finally:
            self.drive.close()
            self.seams.close()


TestClaims = Claims.TestCase
TestClaims.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
