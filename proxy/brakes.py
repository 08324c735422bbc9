"""What holds speculation back: budgets, what does not pay, a trajectory that goes badly, an endpoint under load.

Told of every bet when it is placed and when it is settled, once each, and of every probe. Counts why it refused.
"""

from __future__ import annotations

import logging
from typing import Any

from agentspec import clock
from agentspec.config import Settings
from agentspec.effects import ToolSpec
from agentspec.gating.account import Account, Standing
from agentspec.gating.averages import Averages
from agentspec.gating.brake_settings import ProbeBudget
from agentspec.gating.breaker import Breaker
from agentspec.gating.kept import Kept
from agentspec.gating.load import Load
from agentspec.protocols import LiveTurn, Prediction, ProbeRecord, Upstream
from agentspec.proxy.bet import Bet
from agentspec.proxy.spending import Spending

log = logging.getLogger("agentspec.brakes")

PROBE = "probe"
GUARDED_SHARE = 0.15
"""What a second of a discarded run costs at least in the brakes' books, where nothing is known of its tool: the gate
prices what is usual, a brake what may be."""
_ALL = "*"
"""Of the probes of all tools."""


class Brakes:
    """All brakes of one proxy. One event loop, no locks."""

    def __init__(self, settings: Settings, averages: Averages) -> None:
        self._spending = Spending(settings)
        self._averages = averages
        self._miss_cost_share = settings.miss_cost_share
        self._of_tools = settings.tool_budgets
        self._max_queued = settings.max_queued_requests
        self._breakers: Kept[tuple[str, str], Breaker] = Kept(Breaker)
        self._accounts: Kept[str, Account] = Kept(Account)
        self._standings: Kept[tuple[str, str], list[Standing]] = Kept(list)
        """By predictor and tenant; one each, made when it is first asked for."""
        self._took_s: Kept[str, list[float]] = Kept(lambda: [0.0])
        """By tenant: what its trajectories have taken in all."""
        self._loads: Kept[int, Load] = Kept(Load, most=200)
        self._probed: set[str] = set()
        """Trajectories with a probe under way."""
        self.refused: dict[str, int] = {}
        """How often, by brake."""

    # May it begin?

    def refuses_run(self, turn: LiveTurn, spec: ToolSpec, prediction: Prediction) -> str | None:
        """Why this tool may not be run ahead now; None where it may."""
        now_s, tenant = clock.monotonic(), turn.tenant
        standing = self._standing(prediction.answerable, tenant)
        return (
            self._because("trajectory", self._accounts[turn.trajectory].refuses())
            or self._because("predictor", standing.refuses(self._took_s[tenant][0]))
            or self._because("budget", self._spending.refuses_run(spec, now_s))
            or self._because("no gain", self._breakers[prediction.predictor, spec.name].refuses(now_s))
        )

    def _standing(self, predictor: str, tenant: str) -> Standing:
        found = self._standings[predictor, tenant]
        if not found:
            found.append(Standing(self._took_s[tenant][0]))
        return found[0]

    def refuses_probe(self, turn: LiveTurn) -> str | None:
        """Why this turn may not be probed now; None where it may."""
        now_s, where = clock.monotonic(), id(turn.upstream)
        if turn.trajectory in self._probed:
            return "a probe of this trajectory is under way"
        return (
            self._because("trajectory", self._accounts[turn.trajectory].refuses())
            or self._because("load", self._loads[where].refuses(self._max_queued, now_s))
            or self._because("predictor", self._standing(PROBE, turn.tenant).refuses(self._took_s[turn.tenant][0]))
            or self._because("budget", self._spending.refuses_probe(where, now_s))
            or self._because("no gain", self._breakers[PROBE, _ALL].refuses(now_s))
        )

    def _because(self, brake: str, why: str | None) -> str | None:
        if why is not None:
            self.refused[brake] = self.refused.get(brake, 0) + 1
        return why

    # What happens

    def placed(self, bet: Bet) -> None:
        """A runtime was told to run it."""
        bet.dispatched = bet.running = True
        self._spending.run_began(_tool(bet), clock.monotonic())
        self._breakers[bet.prediction.predictor, _tool(bet)[0]].began()

    def ran(self, bet: Bet) -> None:
        """Its run is over, one way or another."""
        if bet.running:
            bet.running = False
            self._spending.run_over(_tool(bet))

    def settled(self, bet: Bet) -> None:
        """It has its outcome. What was refused at once neither cost nor saved anything."""
        self.ran(bet)
        if not bet.dispatched:
            return
        if bet.outcome == "vetoed":  # by its runtime
            self._breakers[bet.prediction.predictor, _tool(bet)[0]].never_mind()
            return
        account = self._accounts[bet.turn.trajectory]
        cost_s = self.miss_cost_share(_tool(bet)[0], GUARDED_SHARE) * bet.discarded_s
        standing = self._standing(bet.prediction.answerable, bet.turn.tenant)
        standing.lost_s, standing.saved_s = standing.lost_s + cost_s, standing.saved_s + bet.saved_s
        if bet.served:
            account.served(bet.saved_s)
        elif bet.matched:
            account.cost(cost_s)
        else:
            account.discarded(cost_s)
            self._stopped_early(bet)
        self._net(bet.prediction.predictor, _tool(bet)[0], bet.gain_s - cost_s)
        if bet.prediction.predictor == PROBE and bet.served:
            self._net(PROBE, _ALL, bet.gain_s)

    def miss_cost_share(self, tool: str, at_least: float = 0.0) -> float:
        """What a second of a discarded run of this tool costs, in seconds.

        Args:
            at_least: for a tool that has no share of its own.
        """
        own = self._of_tools.get(tool)
        if own is None or own.miss_cost_share is None:
            return max(at_least, self._miss_cost_share)
        return own.miss_cost_share

    def _stopped_early(self, bet: Bet) -> None:
        usual_s = self._averages.tool_latency(*_tool(bet)).value
        if usual_s > 0:
            share = self._averages.discarded_share(*_tool(bet))
            share.add(min(1.0, bet.discarded_s / usual_s))

    def _net(self, predictor: str, tool: str, net_s: float) -> None:
        breaker = self._breakers[predictor, tool]
        was_off = breaker.off_until_s
        breaker.add(net_s, clock.monotonic())
        if breaker.off_until_s is not None and breaker.off_until_s != was_off:
            log.warning("%s of %s cost more than it saved; off for %.0f s", predictor, tool, breaker.pause_s)

    def probe_began(self, turn: LiveTurn) -> None:
        """A probe is sent."""
        self._probed.add(turn.trajectory)
        self._spending.probe_began(id(turn.upstream), clock.monotonic())
        self._breakers[PROBE, _ALL].began()

    def probe_over(self, turn: LiveTurn, probe: ProbeRecord) -> None:
        """A probe has ended, however it went."""
        now_s = clock.monotonic()
        self._probed.discard(turn.trajectory)
        self._spending.probe_over(id(turn.upstream), probe, now_s)
        if probe.outcome in ("predicted", "no call"):
            self._loads[id(turn.upstream)].probe_s.add(probe.duration_s, now_s)
        cost_s = self._averages.slowdown(turn.request.model).measured * probe.duration_s
        self._accounts[turn.trajectory].cost(cost_s)
        self._standing(PROBE, turn.tenant).lost_s += cost_s
        self._net(PROBE, _ALL, -cost_s)

    def turn_over(self, turn: LiveTurn, *, came_true: bool, s_per_char: float | None) -> None:
        """A turn's answer has ended. `came_true`: a prediction of one of its calls was right, run or not."""
        account = self._accounts[turn.trajectory]
        account.tenant = turn.tenant
        account.took(turn.elapsed_s())
        self._took_s[turn.tenant][0] += turn.elapsed_s()
        if came_true:
            account.came_true()
        if s_per_char is not None:
            self._loads[id(turn.upstream)].s_per_char.add(s_per_char, clock.monotonic())

    def waited(self, trajectory: str, seconds: float) -> None:
        """The agent waited so long for a tool."""
        account = self._accounts[trajectory]
        account.took(seconds)
        if account.tenant is not None:
            self._took_s[account.tenant][0] += seconds

    def limit(self, upstream: Upstream, budget: ProbeBudget) -> None:
        """Probes of this endpoint have a budget of their own."""
        self._spending.limit(upstream, budget)

    def told_for_nothing(self, bet: Bet) -> None:
        """Its arguments went to a third party, and nobody makes the call."""
        self._spending.told_for_nothing(_tool(bet), clock.monotonic())

    def wants_load(self, upstream: Upstream) -> bool:
        """Whether this endpoint's load is of interest: probes of it were thought of lately."""
        return self._loads[id(upstream)].wanted(clock.monotonic())

    def queue(self, upstream: Upstream, depth: float) -> None:
        """An engine told how many requests it keeps waiting."""
        self._loads[id(upstream)].queue(depth, clock.monotonic())

    def use(self, spec: ToolSpec) -> tuple[int, float]:
        """Runs ahead of this tool that go on now, and how many began in the last minute."""
        return self._spending.use(spec, clock.monotonic())

    def counts(self) -> dict[str, Any]:
        """For whoever asks how it goes."""
        off = sorted(f"{who}/{tool}" for (who, tool), one in self._breakers.items() if one.off_until_s is not None)
        return {"refused": self.refused, "off": off}


def _tool(bet: Bet) -> tuple[str, str]:
    held = bet.held
    return (held.spec.name, held.spec.fingerprint) if held is not None else (bet.prediction.call.name, "")
