"""Every bet from its offer to its one outcome. One event loop, no locks.

A bet is `offered`; the gate may veto it. `dispatched` bets run in a runtime. A real call may be granted one; its
claim settles it. Whatever else happens (no such call, a write, a fault, time) settles it too: exactly once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from agentspec import channel, clock
from agentspec.calls import ToolCall, canonical_json
from agentspec.effects import ToolSpec
from agentspec.gating.averages import Averages
from agentspec.proxy.bet import Bet
from agentspec.proxy.brakes import Brakes
from agentspec.proxy.egress import EgressBudget
from agentspec.proxy.expected import Asked, ExpectedCalls
from agentspec.proxy.live import Live
from agentspec.proxy.runtimes import RuntimeLink
from agentspec.proxy.scribe import Scribe

log = logging.getLogger("agentspec.books")

_MAX_ARGUMENT_BYTES = 64 * 2**10
"""A call with larger arguments is not sent over the channel."""

OUTCOMES = ("hit", "joined", "miss", "stale", "failed", "vetoed", "unclaimed")


class Books:
    """All bets that have no outcome yet, and what is written down of those that have."""

    def __init__(
        self,
        scribe: Scribe,
        averages: Averages,
        *,
        bet_limit_s: float,
        egress: EgressBudget,
        brakes: Brakes,
    ) -> None:
        self.egress = egress
        self._brakes = brakes
        self._scribe = scribe
        self.averages = averages
        self._bet_limit_s = bet_limit_s
        self._open: dict[str, Bet] = {}
        self._expected = ExpectedCalls()
        self.counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        self.faults: dict[str, int] = {}

    def egress_spent(self, tenant: str) -> bool:
        """Whether this tenant's wrong guesses have told third parties enough for now."""
        out = sum(
            bet.turn.tenant == tenant and bet.held is not None and bet.held.spec.egress for bet in self._open.values()
        )
        return self.egress.spent(tenant, out)

    def unsafe(self, turn: Live, spec: ToolSpec, link: RuntimeLink) -> str | None:
        """Why nothing of this tool may begin now, however likely it is; None where it may."""
        if spec.egress and self.egress_spent(turn.tenant):
            return "the egress budget of this hour is spent"
        return "a call that may write is going on" if spec.depends_on and link.writing() else None

    @property
    def open_bets(self) -> int:
        """Bets without an outcome."""
        return len(self._open)

    def of_turn(self, turn: Live) -> list[Bet]:
        """The turn's bets without an outcome."""
        return [bet for bet in self._open.values() if bet.turn is turn]

    def place(self, bet: Bet) -> None:
        """Enter a bet; one that the gate let through is dispatched."""
        bet.offered_s = bet.turn.elapsed_s()
        self._open[bet.id] = bet
        if bet.link is None or not bet.verdict.go:
            self.settle(bet, "vetoed", bet.verdict.reason)
            return
        call = bet.prediction.call
        if len(canonical_json(call.arguments)) > _MAX_ARGUMENT_BYTES:
            self.settle(bet, "vetoed", "the arguments are too large to be sent ahead")
            return
        name = bet.link.name_of(call.name)
        self._brakes.placed(bet)
        tell = bet.told is not None and bet.link.tells
        bet.link.send(channel.RunAhead(bet.id, bet.turn.trajectory, name, call.arguments, self._bet_limit_s, tell))

    def settle(self, bet: Bet, outcome: str, reason: str) -> None:
        """Give a bet its outcome. A second one is refused: the first counts."""
        if not bet.open:
            return
        bet.outcome, bet.settled_s = outcome, bet.turn.elapsed_s()
        self._open.pop(bet.id, None)
        self.counts[outcome] += 1
        if bet.told_others and not bet.matched:  # what the agent really calls tells nobody more than without us
            self.egress.discarded(bet.turn.tenant)
            self._brakes.told_for_nothing(bet)
        self._scribe.bet(bet, reason)
        try:
            self._brakes.settled(bet)
        except Exception as error:
            self._fault("brakes", error)
        if bet.dispatched and not (bet.matched or bet.served):
            resting = [one for one in self._open.values() if one.base is bet]
            self.cancel(resting, "miss", "what it rested on was not called")

    def _fault(self, who: str, error: Exception) -> None:
        self.faults[who] = self.faults.get(who, 0) + 1
        if self.faults[who] == 1:
            log.exception("%s failed; bets go on: %r", who, error)

    def cancel(self, bets: Iterable[Bet], outcome: str, reason: str) -> None:
        """Settle bets that will not be claimed, and stop their runs."""
        for bet in list(bets):
            if bet.open and not bet.granted:
                if bet.link is not None:
                    bet.link.send(channel.Cancel(bet.id, reason))
                self.settle(bet, outcome, reason)

    # What the relayed stream says

    def call_known(self, turn: Live, call: ToolCall, link: RuntimeLink, key: str | None = None) -> bool:
        """A real call's JSON has closed; whether a bet is on it. `key`: of the window that the call opened."""
        if link.held(call.name) is not None:
            self._expected.add(Asked.by(turn, call, link))
        bet = next((b for b in self.of_turn(turn) if not b.matched and b.fits(call)), None)
        if bet is not None:
            bet.matched, bet.call = True, key
        return bet is not None

    def write_relayed(self, link: RuntimeLink, turn: Live | None = None, tool: str = "") -> None:
        """A call that may write went out: every read of this runtime that was not handed over is stale.

        A bet on a write, in a sandbox, is not made stale by the call that it may be a bet on.
        """
        bets = [bet for bet in self._open.values() if bet.link is link and bet.reads]
        stale = [bet for bet in bets if not (bet.turn is turn and bet.prediction.call.name == tool)]
        self.cancel(stale, "stale", "a call that may write was relayed")

    def answer_over(self, turn: Live, *, client_left: bool) -> None:
        """The turn's answer has ended: what matches no relayed call is dropped."""
        bets = self.of_turn(turn)
        if client_left:
            self.cancel(bets, "unclaimed", "the client left")
        else:
            self.cancel([b for b in bets if not (b.matched or b.lives_on)], "miss", "the turn made no such call")

    def next_request(self, turn_id: str, *, with_results: bool = False) -> list[Bet]:
        """The trajectory went on: what its last turn's calls did not claim will not be claimed.

        Returns:
            the bets on calls of the turn that begins; `with_results`: it has the results that those rest on.
        """
        bets = [bet for bet in self._open.values() if bet.turn.id == turn_id]
        live = [bet for bet in bets if with_results and bet.lives_on and not (bet.matched or bet.granted)]
        self.cancel([bet for bet in bets if bet not in live], "unclaimed", "the trajectory went on without claiming it")
        return live

    # What a runtime says

    def hear(self, link: RuntimeLink, message: channel.FromRuntime) -> None:
        """Act on a runtime's message."""
        if isinstance(message, channel.Ran):
            self._ran(link, message)
        elif isinstance(message, channel.Refused):
            self._settle_id(link, message.bet, "vetoed", message.reason)
        elif isinstance(message, channel.Ask):
            self._asked(link, message)
        elif isinstance(message, channel.Voided):
            for bet in message.bets:
                self._settle_id(link, bet, message.outcome if message.outcome in OUTCOMES else "failed", message.reason)
        elif isinstance(message, channel.Claimed):
            self._claimed(link, message)

    def _bet_of(self, link: RuntimeLink, bet_id: str | None) -> Bet | None:
        """An open bet of this runtime: nobody may speak for another's."""
        bet = self._open.get(bet_id) if bet_id else None
        return bet if bet is not None and bet.link is link else None

    def _settle_id(self, link: RuntimeLink, bet_id: str, outcome: str, reason: str) -> None:
        bet = self._bet_of(link, bet_id)
        if bet is not None:
            self.settle(bet, outcome, reason)

    def _ran(self, link: RuntimeLink, message: channel.Ran) -> None:
        bet = self._bet_of(link, message.bet)
        if bet is None:
            return
        bet.latency_s = message.latency_s
        self._brakes.ran(bet)
        if message.error is not None:
            self.settle(bet, "failed", message.error)
            return
        self._took(link, bet.prediction.call.name, message.latency_s)
        bet.copy = message.result
        if bet.told is not None:
            bet.told(bet)

    def _took(self, link: RuntimeLink, tool: str, latency_s: float) -> None:
        held = link.held(tool)
        if held is not None:
            self.averages.tool_latency(held.spec.name, held.spec.fingerprint).add(latency_s)

    def _asked(self, link: RuntimeLink, ask: channel.Ask) -> None:
        """Answer now, or as soon as everything that went out to this runtime's agents has been read."""
        if link.undecoded:
            link.deferred.append(ask)
        else:
            link.send(self._grant(link, ask))

    def all_read(self, link: RuntimeLink) -> None:
        """Nothing relayed to this runtime's agents is unread any more."""
        deferred, link.deferred = link.deferred, []
        for ask in deferred:
            self._asked(link, ask)

    def _grant(self, link: RuntimeLink, ask: channel.Ask) -> channel.Grant:
        bet = self._bet_of(link, ask.bet)
        if bet is None:
            return channel.Grant(ask.ask, False, "this bet is settled already")
        own = (bet.turn.id, bet.call) if bet.call is not None else None
        if bet.reads and link.writing(besides=own):
            self.settle(bet, "stale", "a call that may write is going on")
            return channel.Grant(ask.ask, False, "a call that may write is going on")
        bet.granted = True
        return channel.Grant(ask.ask, True)

    def _claimed(self, link: RuntimeLink, message: channel.Claimed) -> None:
        bet = self._bet_of(link, message.bet)
        bet_on = Asked.by(bet.turn, bet.prediction.call, link) if bet is not None else None
        asked = self._expected.claimed(link, message, bet_on)
        if asked is not None:
            link.send(channel.Session(message.claim, asked.trajectory))
            self._brakes.waited(asked.trajectory, message.waited_s)
            self._claimed_at(asked, asked.elapsed_s() - message.waited_s)
        if message.outcome == "miss":
            self._took(link, message.tool, message.latency_s)
        if bet is not None:
            bet.latency_s, bet.waited_s = message.latency_s, message.waited_s
            served = message.outcome in ("hit", "joined")
            self.settle(bet, message.outcome if served else "failed", message.reason)
        held = link.tools.get(message.tool)
        began_at = asked.began_at + asked.elapsed_s() if asked is not None else time.time()
        self._scribe.claim(message, asked, held, began_at - message.waited_s)

    def _claimed_at(self, asked: Asked, at_s: float) -> None:
        runway = self.averages.runway(asked.model)
        runway.claimed(max(0.0, at_s), max(0.0, at_s - asked.closed_s), followed=asked.followed)

    def link_lost(self, link: RuntimeLink) -> None:
        """A runtime's channel closed: none of its bets can be claimed any more."""
        for bet in [bet for bet in self._open.values() if bet.link is link]:
            self.settle(bet, "failed", "the runtime's channel closed")
        self._expected.forget(link)

    def expire(self) -> None:
        """Drop what is older than its limit."""
        now = clock.monotonic()
        old = [b for b in self._open.values() if now - b.turn.began_s - b.offered_s > self._bet_limit_s]
        self.cancel([bet for bet in old if bet.turn.ended], "unclaimed", "not claimed in time")
        for bet in [bet for bet in old if bet.granted and now - bet.turn.began_s > 4 * self._bet_limit_s]:
            self.settle(bet, "failed", "granted, but the claim never reported back")
