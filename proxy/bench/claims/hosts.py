"""A runtime and the proxy at the other end of its channel, which orders, grants and forgets as the driver wants."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from agentspec import channel
from agentspec.proxy.bench.claims.fibers import Fiber
from agentspec.proxy.bench.claims.record import Record
from agentspec.proxy.bench.claims.stage import USER, Stage, StageTiers
from agentspec.proxy.bench.claims.tools import ACCOUNTS, Given, Offer
from agentspec.proxy.bench.claims.world import Order
from agentspec.tools_sandbox import tool
from agentspec.tools_sandbox.claim_table import ClaimTable
from agentspec.tools_sandbox.runtime import Runtime

HOSTS = 3
"""Runtimes of the process."""

_MAX_RUNS = 14
_MAX_BYTES = 6000
_LIMITS_S = (1.0, 5.0, 30.0)


class Host:
    """One runtime; implements `Link` for it.

    Attributes:
        inbox: what the proxy has said and the runtime has not read yet.
        reader: the fiber that acts on a message or on the loss of the channel.
        bets: the orders since the channel was last lost.
    """

    def __init__(self, number: int, stage: Stage, offers: Mapping[str, Offer], record: Record) -> None:
        self.number = number
        """One for each runtime that there ever was."""
        self.connected = True
        self.inbox: deque[channel.FromProxy] = deque()
        self.reader: Fiber | None = None
        self.bets: list[str] = []
        self._fibers = stage.fibers
        self._offers = offers
        self._record = record
        held = [o.tool for i, o in enumerate(offers.values()) if number % HOSTS == 0 or (i + number) % 3]
        self._held = frozenset(held)
        self.runtime = _Small(StageTiers(stage), held)
        self.runtime.tools()
        self.runtime.attach(self)

    # Link

    def send(self, message: channel.FromRuntime) -> None:
        """The proxy hears it, and may answer; the thread may lose its turn before or after."""
        self._fibers.may_preempt("a message")
        if isinstance(message, (channel.Voided, channel.Refused, channel.Ran)):
            self._note_fate(message)
        elif isinstance(message, channel.Claimed):
            offer = self._offers[message.tool]
            self._record.counts[message.outcome, offer.kind] += 1
            self._attribute(message)
        elif isinstance(message, channel.Ask) and self.connected:
            self._answer(message)
        self._fibers.may_preempt("a message")

    def introduce(self) -> None:
        """Nothing changes here."""

    def _note_fate(self, message: channel.Voided | channel.Refused | channel.Ran) -> None:
        if isinstance(message, channel.Voided):
            bets, outcome = message.bets, message.outcome
        elif isinstance(message, channel.Refused):
            bets, outcome = [message.bet], "refused"
        else:
            bets, outcome = ([message.bet], "failed") if message.error is not None else ([], "")
        for order in (self._record.orders[bet] for bet in bets if bet in self._record.orders):
            order.fate = order.fate or outcome
            self._record.counts[outcome, order.kind] += 1

    def _attribute(self, message: channel.Claimed) -> None:
        random = self._fibers.random
        if self.connected and random.random() < 0.9:
            user = USER.get() if random.random() < 0.97 else random.choice(tuple(ACCOUNTS))
            self.inbox.append(channel.Session(message.claim, f"{user}-{random.randint(1, 2) if user == 'ann' else 1}"))

    def _answer(self, message: channel.Ask) -> None:
        chance = self._fibers.random.random()
        if chance < 0.99:
            self._record.orders[message.bet].granted = chance < 0.95
            self.inbox.append(channel.Grant(message.ask, chance < 0.95, "refused"))

    # What the proxy does

    def holds(self, offer: Offer) -> bool:
        """Whether its runtime has this tool."""
        return offer.tool in self._held

    def order(self, offer: Offer, given: Given, session: str) -> str:
        """Order a call ahead; returns the order in words."""
        orders = self._record.orders
        bet, limit_s = f"b{len(orders)}", self._fibers.random.choice(_LIMITS_S)
        orders[bet] = Order(bet, offer.kind, limit_s)
        self.bets.append(bet)
        self.inbox.append(channel.RunAhead(bet, session, offer.tool.name, given.json, limit_s))
        self._record.counts["orders", offer.kind] += 1
        return f"{bet} of {self.number}: {offer.tool.name}{given.json} for {session}"

    def cancel(self, bet: str) -> str:
        """Withdraw an order."""
        self.inbox.append(channel.Cancel(bet, "withdrawn"))
        return bet

    def read(self) -> bool:
        """The runtime reads the next message."""
        message = self.inbox.popleft()
        self._record.note("deliver", message, type(message).__name__)

        def act() -> None:
            self.runtime.receive(message)
            if isinstance(message, channel.Cancel):
                self._withdrawn([message.bet])
            self.reader = None

        self.reader = self._fibers.start(act, "reader")
        if isinstance(message, channel.RunAhead):
            self.reader.bet = message.bet
        self._fibers.resume(self.reader)
        return True

    def _withdrawn(self, bets: list[str]) -> None:
        for order in map(self._record.orders.__getitem__, bets):
            order.over = self._record.steps if order.over is None else order.over

    # What befalls it

    def lose(self) -> None:
        """The channel is gone."""
        self.connected = False
        self.inbox.clear()

        def act() -> None:
            self.runtime.lost()
            self._withdrawn(self.bets)
            self.bets.clear()
            self.reader = None

        self.reader = self._fibers.start(act, "reader")
        self._fibers.resume(self.reader)

    def forget(self) -> None:
        """The process has forked: this is the child, with a channel of its own."""
        self.runtime.forget_everything()
        self.inbox.clear()
        self.reader = None
        self._withdrawn(self.bets)
        self.bets.clear()
        self.runtime.attach(self)
        self.connected = True

    def close(self) -> None:
        """It ends, and its channel with it."""
        self.connected = False
        self.inbox.clear()
        self.runtime.close()
        tool.RUNTIMES.discard(self.runtime)
        self._withdrawn(self.bets)


class _Small(Runtime):
    """One whose table is soon full."""

    def _reset(self) -> None:
        super()._reset()
        self.table = ClaimTable(_MAX_RUNS, _MAX_BYTES)
