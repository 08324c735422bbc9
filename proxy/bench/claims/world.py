"""The world that `bench claims` acts in, and the judge of what its tools return.

The world is a set of domains with versions. A tool's result says which versions it saw, for whom, for which arguments
and when. The judge asks one question: could a plain run of this very call, begun after the call's start and over before
its end, have seen the same? Reads come in order, so it is enough to find ever later moments that fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

ORDERS, USERS, STOCK, FILES = "orders", "users", "stock", "files"
KEYS = ("0", "1", "2")
NAMED = (ORDERS, USERS, STOCK, *(f"order:{key}" for key in KEYS))
"""The domains that plain writes change; `FILES` is changed through a sandbox as well."""

_EPSILON_S = 1e-9


class World:
    """Versions of domains, and the moment (a count of changes) at which each came to be."""

    def __init__(self) -> None:
        self.moment = 0
        self._since: dict[str, list[int]] = {name: [0] for name in (*NAMED, FILES)}

    def version(self, domain: str) -> int:
        """What a read of the domain sees now."""
        return len(self._since[domain]) - 1

    def change(self, domain: str) -> int:
        """A write takes effect; returns the new version."""
        self.moment += 1
        self._since[domain].append(self.moment)
        return self.version(domain)

    def possible(self, seen: Sequence[tuple[str, int]], first: int, last: int) -> bool:
        """Whether reads in this order could have seen these versions between two moments, both included."""
        at = first
        for domain, version in seen:
            since = self._since[domain]
            if not 0 <= version < len(since):
                return False
            at = max(at, since[version])
            if at > last or (version + 1 < len(since) and at >= since[version + 1]):
                return False
        return True


class Result:
    """What a tool returned: one object for each run. Times in seconds on the run's clock."""

    __slots__ = ("about", "began_s", "bet", "commits", "handed", "seen", "tool", "who")

    def __init__(  # noqa: PLR0913  (what the judge needs)
        self, tool: str, about: Hashable, who: str, seen: tuple[tuple[str, int], ...], began_s: float, bet: str | None
    ) -> None:
        self.tool = tool
        self.about = about
        self.who = who
        self.seen = seen
        self.began_s = began_s
        self.bet = bet
        """The order that it ran ahead for, None for a real run."""
        self.handed = 0
        """How many real calls got it."""
        self.commits: int | None = None
        """For a result that ran in a sandbox: how often its change was made real."""

    def __repr__(self) -> str:
        return f"<{self.tool}{self.about} for {self.who}: {dict(self.seen)}, began {self.began_s:.3f}, bet {self.bet}>"


class ToolFailed(Exception):
    """A tool raised; `bet` as in `Result`."""

    def __init__(self, bet: str | None) -> None:
        super().__init__("the tool failed")
        self.bet = bet


@dataclass(slots=True, eq=False)
class Order:
    """A call that was ordered ahead. `granted`: the proxy said that it may be handed over. `over` is the step at which
    it was withdrawn, `fate` how it ended.
    """

    bet: str
    kind: str
    limit_s: float
    granted: bool = False
    over: int | None = None
    fate: str | None = None


@dataclass(slots=True, eq=False)
class Call:
    """A real call, from its start to its end; `first` and `last` are moments of the world, `step` a driver's step."""

    tool: str
    kind: str
    about: Hashable
    who: str
    stable_for_s: float | None
    step: int
    first: int
    began_s: float
    last: int = -1
    interrupted: bool = False

    def __repr__(self) -> str:
        return f"{self.tool}{self.about} for {self.who}, begun at {self.step}"


def fault_of(world: World, call: Call, got: Result | BaseException, orders: dict[str, Order]) -> str | None:
    """Why a call may not end like that, None where it may."""
    if isinstance(got, ToolFailed):
        return None if got.bet is None else f"it raised what the run ahead {got.bet} had raised"
    if not isinstance(got, Result):
        return f"it ended in {got!r}"
    return next((fault for wrong, fault in _faults(world, call, got, orders) if wrong), None)


def _faults(world: World, call: Call, got: Result, orders: dict[str, Order]) -> Iterator[tuple[bool, str]]:
    """What could be wrong with a result, and whether it is."""
    yield (got.tool, got.about) != (call.tool, call.about), "the result is another call's"
    yield got.who != call.who, "the result is somebody else's"
    yield got.handed > 0, "the result was handed over before"
    fits = world.possible(got.seen, call.first, call.last)
    yield not fits, f"no run between the moments {call.first} and {call.last} could have seen that"
    if got.bet is not None:
        yield from _faults_of_order(call, got, orders[got.bet])


def _faults_of_order(call: Call, got: Result, order: Order) -> Iterator[tuple[bool, str]]:
    """What only a run ahead can get wrong."""
    age_s, good_s = call.began_s - got.began_s - _EPSILON_S, call.stable_for_s
    yield good_s is not None and age_s > good_s, f"it was {age_s:.3f} s old when the call began, good for {good_s} s"
    yield age_s > order.limit_s, f"it was kept for {age_s:.3f} s, ordered for {order.limit_s:g} s"
    withdrawn = order.over is not None and order.over <= call.step
    yield withdrawn, f"its order was withdrawn at {order.over}, before the call began"
    yield not order.granted, "it was not granted"
    yield order.fate is not None, f"its order was reported as {order.fate} before"
    yield got.commits not in (None, 1), f"its change was made {got.commits} times"
