"""The driver of `bench claims`: takes one step after the other, each chosen by the seed."""

from __future__ import annotations

import contextvars
import itertools
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from agentspec.proxy.bench.claims.calls import Calls
from agentspec.proxy.bench.claims.fibers import Fibers
from agentspec.proxy.bench.claims.hosts import HOSTS, Host
from agentspec.proxy.bench.claims.loop import SteppedLoop
from agentspec.proxy.bench.claims.record import Record
from agentspec.proxy.bench.claims.stage import Stage
from agentspec.proxy.bench.claims.tools import Given, Offer, offers_on
from agentspec.proxy.bench.claims.world import FILES, ORDERS, STOCK, USERS

SESSIONS = ("ann-1", "ann-2", "ben-1", "cy-1", "nobody-1")
_TOPICS = (ORDERS, USERS, STOCK, FILES, "order:0")
_MOST_CALLS = 8
_MOST_WANTED = 12
_MOST_DRAIN_STEPS = 20_000


class Drive:
    """One run: its world, its runtimes and what it has found. What takes a step returns whether it could."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.fibers = Fibers(self.random)
        self.record = Record()
        self._stage = Stage(self.fibers)
        self._loop = SteppedLoop(self.fibers)  # type: ignore[abstract]
        self._calls = Calls(self._stage, self._loop, self.record)
        self._offers = {offer.tool.name: offer for offer in offers_on(self._stage)}
        self._topics = {topic: [o for o in self._offers.values() if o.concerns(topic)] for topic in _TOPICS}
        self._wanted: deque[tuple[Offer, Given, str]] = deque(maxlen=_MOST_WANTED)
        self._hosts: list[Host] = []
        self._phase_ends = 0
        self._acts: dict[str, Callable[[], bool]] = {
            "go on": self._go_on,
            "round": self._make_round,
            "deliver": self._deliver,
            "call": self._call,
            "order": self._order,
            "clock": self._step_clock,
            "cancel": self._cancel_order,
            "interrupt": lambda: self._calls.interrupt_one(self.random),
            "sweep": self._sweep,
            "connect": self._connect,
            "lose": self._lose,
            "fork": self._fork,
            "replace": self._replace,
        }
        self.names = tuple(self._acts)

    def begin(self) -> None:
        """Connect the first runtimes."""
        self._hosts = [self._host(number) for number in range(HOSTS)]
        self._begin_phase()

    def _host(self, number: int) -> Host:
        self.fibers.now_s += 1e-6  # no two begin at the same time
        return contextvars.Context().run(Host, number, self._stage, self._offers, self.record)

    def _begin_phase(self) -> None:
        """For some steps only a few tools and sessions are called, in one kind of weather: so they meet often."""
        random = self.random
        self._phase_ends = self.record.steps + random.randint(100, 1000)
        some = self._topics[random.choice(_TOPICS)] if random.random() < 0.8 else list(self._offers.values())
        self._writes = random.sample([o for o in some if o.kind in ("write", "sandboxed")], 2)
        reads = [o for o in some if o.kind != "write"]
        self._reads = random.sample(reads, min(4, len(reads)))
        self._sessions = random.sample(SESSIONS, 2)
        self._writes_share = random.choice((0.05, 0.15, 0.4))
        clock, rare = random.choice((10, 30, 80)), random.choice((0.0, 0.3, 0.3, 3.0))
        weights = (300, 160, 300, 70, 65, clock, 6, 3, 4, 4, 2 * rare, rare, rare)
        self._weights = list(itertools.accumulate(weights))

    def step(self) -> None:
        """Take a step that the seed chooses."""
        if self.record.steps >= self._phase_ends:
            self._begin_phase()
        while not self.act(self.random.choices(self.names, cum_weights=self._weights)[0]):
            pass

    def act(self, name: str) -> bool:
        """Take a step of this name if it can be taken now."""
        if not self._acts[name]():
            return False
        while self.fibers.crashed:
            self.record.found(f"crashed: {self.fibers.crashed.pop()!r}")
        return True

    def drain(self) -> None:
        """Let every call and every run end; nothing new begins."""
        for _ in range(_MOST_DRAIN_STEPS):
            if not (self._calls or self.fibers.alive or self._loop.has_work() or self._loop.next_due_s()):
                return
            if not (self.act("go on") or self.act("round") or self.act("deliver")):
                due = [t for t in (self.fibers.next_due_s(), self._loop.next_due_s()) if t is not None]
                self._pass(max(0.0, min(due, default=self.fibers.now_s + 1.0) - self.fibers.now_s) + 1e-6)
        self.record.found(f"stuck: {self._calls}; {[fiber.where for fiber in self.fibers.alive]}")

    def close(self) -> None:
        """End all runtimes, threads, and what is left on the loop."""
        for host in self._hosts:
            host.close()
        self.fibers.kill_all()
        self._loop.close()
        self.fibers.close()

    # What lets something go on

    def _go_on(self) -> bool:
        """A thread that waits gets its turn."""
        runnable = self.fibers.runnable()
        if not runnable:
            return False
        fiber = self.random.choice(runnable)
        self.record.note("go on", (fiber.tag, fiber.where), fiber.where)
        self.fibers.resume(fiber)
        return True

    def _make_round(self) -> bool:
        """The event loop makes one round."""
        if not self._loop.has_work():
            return False
        self.record.note("round", "")
        self._loop.make_round()
        return True

    def _deliver(self) -> bool:
        """A runtime reads the next message of its proxy."""
        waiting = [host for host in self._hosts if host.inbox and host.reader is None]
        return bool(waiting) and self.random.choice(waiting).read()

    def _step_clock(self) -> bool:
        """Time passes: mostly a little, now and then a lot."""
        self._pass(self.random.choices((0.02, 0.2, 4.0, 60.0), (75, 22, 2.7, 0.3))[0] * self.random.random())
        return True

    def _pass(self, seconds: float) -> None:
        self.record.note("clock", seconds)
        self.fibers.now_s += seconds
        self.fibers.begin_timers()

    # Calls and orders

    def _call(self) -> bool:
        """The agent calls a tool: often one that was ordered a while ago, sometimes one that writes."""
        if len(self._calls) >= _MOST_CALLS:
            return False
        if self._wanted and self.random.random() < 0.75:
            at = self.random.randrange(len(self._wanted)) // 3
            offer, given, session = self._wanted[at]
            del self._wanted[at]
        else:
            offer = self.random.choice(self._writes if self.random.random() < self._writes_share else self._reads)
            given, session = offer.draw(self.random), self.random.choice(self._sessions)
        self._calls.begin(offer, given, session.partition("-")[0])
        return True

    def _order(self) -> bool:
        """The proxy orders a call ahead, and the agent will probably make it."""
        offer, session = self.random.choice(self._reads), self.random.choice(self._sessions)
        hosts = [host for host in self._hosts if host.connected and (host.holds(offer) or self.random.random() < 0.02)]
        if not hosts:
            return False
        given = offer.draw(self.random)
        newest = max(hosts, key=lambda host: host.runtime.began_s)  # the one that learns most
        host = newest if self.random.random() < 0.7 else self.random.choice(hosts)
        self.record.note("order", host.order(offer, given, session))
        self._wanted.append((offer, given, session))
        return True

    def _cancel_order(self) -> bool:
        """The proxy withdraws an order."""
        hosts = [host for host in self._hosts if host.connected and host.bets]
        if not hosts:
            return False
        host = self.random.choice(hosts)
        self.record.note("cancel", host.cancel(self.random.choice(host.bets[-16:])))
        return True

    # What befalls runtimes

    def _sweep(self) -> bool:
        """A runtime drops what nobody claimed in time."""
        host = self.random.choice(self._hosts)
        self.record.note("sweep", host.number)
        self.fibers.start(host.runtime.sweep, "sweep")
        return True

    def _connect(self) -> bool:
        """A runtime that had lost its proxy finds it again."""
        apart = [host for host in self._hosts if not host.connected and host.reader is None]
        if not apart:
            return False
        self.record.note("connect", apart[0].number)
        apart[0].connected = True
        return True

    def _lose(self) -> bool:
        """A runtime loses its proxy."""
        hosts = [host for host in self._hosts if host.connected and host.reader is None]
        if not hosts:
            return False
        host = self.random.choice(hosts)
        self.record.note("lose", host.number)
        host.lose()
        return True

    def _fork(self) -> bool:
        """The process forks while no call is under way, and this is the child: its other threads are gone."""
        if self._calls or self._loop.in_round:
            return False
        self.record.note("fork", "")
        self.fibers.kill_all()
        for offer in self._offers.values():
            offer.tool.forget_runs()
        for host in self._hosts:
            host.forget()
        return True

    def _replace(self) -> bool:
        """A runtime closes and another one begins, in a thread of its own."""
        hosts = [host for host in self._hosts if host.reader is None]
        if not hosts:
            return False
        host = self.random.choice(hosts)
        self.record.note("replace", host.number)
        host.reader = self.fibers.start(partial(self._renew, host), "reader")
        self.fibers.resume(host.reader)
        return True

    def _renew(self, host: Host) -> None:
        host.close()
        self._hosts[self._hosts.index(host)] = self._host(host.number + HOSTS)
