"""A shadow: a real call's twin in the tool's sandbox, run after it and compared with it, never served.

It stands in the claim table from before the real call, so that a write that comes between makes it void: two results of
different states say nothing about the sandbox.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

from agentspec import clock
from agentspec.errors import SpeculationError
from agentspec.tools_sandbox.claim import Claim, compare
from agentspec.tools_sandbox.claim_table import PendingRun
from agentspec.tools_sandbox.fidelity import Ended

_LIMIT_S = 60.0
_numbers = itertools.count(1)


@dataclass(slots=True)
class Shadow:
    """One shadow, registered and not started yet."""

    claim: Claim
    run: PendingRun

    def hold_against(self, real: Ended) -> None:
        """The real call is over: run the twin and compare. Returns at once."""
        runtime = self.claim.runtime
        if real.interrupted:
            runtime.table.drop(self.run.bet)
            return
        self.run.future.add_done_callback(lambda _: self._over(real))
        try:
            runtime.start_run(self.run, json.loads(self.run.arguments.key))
        except SpeculationError:
            runtime.table.drop(self.run.bet)
        if self.run.done:
            self._clear()

    def _over(self, real: Ended) -> None:
        table, run = self.claim.runtime.table, self.run
        raised = run.future.exception() is not None
        if table.drop(run.bet) is not None or raised:  # else a write came between
            compare(run, real)
        self._clear()

    def _clear(self) -> None:
        """Whatever the run has left; it may be over before we have got hold of it."""
        if self.run.run is not None and self.run.tool.spec.sandbox.commits:
            self.run.run.cancel()


def open_shadow(claim: Claim) -> Shadow | None:
    """A shadow for this call, if its tool still has to prove itself and can do so by running once more."""
    tool, arguments = claim.tool, claim.arguments
    proven = tool.fidelity.proven or tool.fidelity.barred is not None
    if proven or claim.checked is not None or arguments is None or not tool.spec.effect.changes_nothing:
        return None
    if not tool.spec.may_run_ahead:
        return None
    now = clock.monotonic()
    run = PendingRun(
        bet=f"shadow-{next(_numbers)}",
        trajectory="",
        tool=tool,
        arguments=arguments,
        surroundings=claim.surroundings,
        owner=None,
        depends_on=tool.depends_on(arguments),
        started_s=now,
        expires_s=now + _LIMIT_S,
        claimable=False,
    )
    started, _ = claim.runtime.table.add(run)
    return Shadow(claim, run) if started else None
