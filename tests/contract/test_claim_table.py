"""The claim table against a simple model: a run is served once, fresh, to its own; caps hold; nothing gets lost."""

from __future__ import annotations

import contextvars
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentspec import speculate
from agentspec.tools_sandbox.claim_table import ClaimTable, PendingRun, approximate_bytes
from agentspec.tools_sandbox.declare import declared
from agentspec.tools_sandbox.surroundings import Surroundings

STABLE_S = 10.0
LIMIT_S = 25.0


@speculate(effect="read", reads={"orders"}, stable_for=STABLE_S)
def get_order(key: str) -> str:
    return key


@speculate(effect="read", reads={"users"}, stable_for=STABLE_S)
def get_user(key: str) -> str:
    return key


@speculate(effect="read", stable_for=STABLE_S)
def get_anything(key: str) -> str:
    return key


@speculate(effect="pure")
def compute(key: str) -> str:
    return key


TOOLS = {f.__name__: declared(f) for f in (get_order, get_user, get_anything, compute)}
READS = {"get_order": {"orders"}, "get_user": {"users"}, "get_anything": {"orders", "users", "*"}, "compute": set()}
USERS = {name: Surroundings({}, contextvars.Context()) for name in "AB"}
user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
for name, surroundings in USERS.items():
    surroundings.variables.run(user.set, name)


def arguments(tool: str, key: str) -> Any:
    signature = TOOLS[tool].signature
    return signature.of_claim(signature.bind((key,), {}))


def pending(bet: str, tool: str, key: str, who: str, now: float, owner: Any = None) -> PendingRun:
    given = arguments(tool, key)
    domains = TOOLS[tool].depends_on(given)
    return PendingRun(bet, "t", TOOLS[tool], given, USERS[who], owner, domains, now, now + LIMIT_S)


@dataclass
class Known:
    """What the model knows of a run."""

    tool: str
    key: str
    who: str
    owner: int
    started: float
    void: bool = False
    size: int = 0
    out: bool = False
    """No longer in the table."""
    runs: PendingRun = field(repr=False, default=None)  # type: ignore[assignment]


tools, keys, people = st.sampled_from(sorted(TOOLS)), st.sampled_from("xy"), st.sampled_from("AB")
owners = st.sampled_from([0, 1])
domains = st.sampled_from([frozenset({"orders"}), frozenset({"users"}), frozenset({"*"}), frozenset({"mail"})])


class Table(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = ClaimTable(max_runs=6, max_bytes=1000)
        self.now = 100.0
        self.known: dict[str, Known] = {}
        self.writes: dict[int, frozenset[str]] = {}
        self.numbers = itertools.count()
        self.left: list[str] = []

    def gone(self, runs: list[PendingRun]) -> None:
        """These runs left the table; none may leave twice."""
        for run in runs:
            assert not self.known[run.bet].out
            self.known[run.bet].out = True

    def overlaps(self, tool: str, written: frozenset[str]) -> bool:
        reads = READS[tool]
        return bool(reads) and ("*" in written or "*" in reads or bool(reads & written))

    def blocked(self, tool: str) -> bool:
        return any(self.overlaps(tool, written) for written in self.writes.values())

    @rule(tool=tools, key=keys, who=people, owner=owners)
    def add(self, tool: str, key: str, who: str, owner: int) -> None:
        bet = f"b{next(self.numbers)}"
        run = pending(bet, tool, key, who, self.now, owner)
        started, dropped = self.table.add(run)
        assert started == (not self.blocked(tool))
        if started:
            self.known[bet] = Known(tool, key, who, owner, self.now, runs=run)
        self.gone(dropped)

    @precondition(lambda self: any(not k.out for k in self.known.values()))
    @rule(data=st.data(), size=st.integers(0, 700))
    def finish(self, data: Any, size: int) -> None:
        inside = [bet for bet, k in self.known.items() if not k.out and not k.runs.done]
        if not inside:
            return
        known = self.known[data.draw(st.sampled_from(inside))]
        known.runs.future.set_result(known.runs.bet)
        known.size = size
        self.gone(self.table.finished(known.runs, size))

    @rule(tool=tools, key=keys, who=people, owner=owners)
    def take(self, tool: str, key: str, who: str, owner: int) -> None:
        run, stale = self.table.take(TOOLS[tool], arguments(tool, key), USERS[who], owner, self.now)
        self.gone(stale)
        for one in stale:
            assert self.now - self.known[one.bet].started > min(STABLE_S, LIMIT_S) or tool == "compute"
        fitting = [
            k for k in self.known.values()
            if (k.tool, k.key, k.who, k.owner) == (tool, key, who, owner) and not k.out and self.fresh(k)
        ]  # fmt: skip
        if self.blocked(tool):
            assert run is None
        elif run is None:
            assert not fitting, "a fitting, fresh run was there"
        else:
            known = self.known[run.bet]
            assert known in fitting, "served twice, to another, or not fresh"
            assert run.done or not any(k.runs.done for k in fitting), "one that is ready goes first"
            self.gone([run])

    def fresh(self, known: Known) -> bool:
        age = self.now - known.started
        return not known.void and age <= LIMIT_S and (known.tool == "compute" or age <= STABLE_S)

    @rule(written=domains)
    def begin_write(self, written: frozenset[str]) -> None:
        ticket, void = self.table.begin_write(written)
        assert ticket not in self.writes
        self.writes[ticket] = written
        self.voided(written, void)

    @precondition(lambda self: bool(self.writes))
    @rule(data=st.data())
    def end_write(self, data: Any) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.writes)))
        self.voided(self.writes.pop(ticket), self.table.end_write(ticket))
        assert self.table.end_write(ticket) == []

    def voided(self, written: frozenset[str], void: list[PendingRun]) -> None:
        for known in self.known.values():
            if self.overlaps(known.tool, written):
                known.void = True
        for run in void:
            assert self.overlaps(self.known[run.bet].tool, written)
        self.gone(void)

    @rule(seconds=st.sampled_from([0.5, 5.0, 10.0, 26.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        old = self.table.expired(self.now)
        for run in old:
            assert self.now - self.known[run.bet].started > LIMIT_S
        self.gone(old)

    @precondition(lambda self: bool(self.known))
    @rule(data=st.data())
    def drop(self, data: Any) -> None:
        bet = data.draw(st.sampled_from(sorted(self.known)))
        run = self.table.drop(bet)
        assert (run is None) == self.known[bet].out
        self.gone([run] if run else [])

    @rule()
    def drop_all(self) -> None:
        self.gone(self.table.drop_all())
        assert all(k.out for k in self.known.values())

    @invariant()
    def caps_hold_and_nothing_is_lost(self) -> None:
        inside = [k for k in self.known.values() if not k.out]
        assert len(self.table) == len(inside) <= 6
        assert sum(k.size for k in inside) <= 1000
        assert not any(k.void for k in inside), "a stale read is still on offer"


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_the_oldest_result_makes_room_and_is_named():
    table = ClaimTable(max_runs=3)
    runs = [pending(f"b{i}", "compute", f"k{i}", "A", float(i)) for i in range(5)]
    dropped = [table.add(run)[1] for run in runs]
    assert [[run.bet for run in some] for some in dropped] == [[], [], [], ["b0"], ["b1"]]


def test_a_new_run_does_not_push_itself_out_while_older_ones_only_run():
    table = ClaimTable(max_runs=2)
    for i in range(3):
        table.add(pending(f"b{i}", "compute", f"k{i}", "A", float(i)))
    assert table.drop("b2") is not None


def test_a_result_that_is_too_big_alone_is_dropped_alone():
    table = ClaimTable(max_bytes=1000)
    small, big = (pending(name, "compute", name, "A", 0.0) for name in ("small", "big"))
    for run, size in ((small, 10), (big, 2000)):
        table.add(run)
        run.future.set_result(None)
        dropped = table.finished(run, size)
    assert [run.bet for run in dropped] == ["big"]


def test_a_run_that_was_taken_before_it_finished_takes_no_room():
    table = ClaimTable(max_bytes=1000)
    run = pending("b0", "compute", "x", "A", 0.0)
    table.add(run)
    taken, _ = table.take(run.tool, run.arguments, run.surroundings, None, 0.0)
    assert taken is run
    assert table.finished(run, 10**9) == []


def test_many_threads_never_get_one_run_twice():
    table = ClaimTable(max_runs=1000)
    for i in range(200):
        table.add(pending(f"b{i}", "compute", "x", "A", 0.0))
    claim = arguments("compute", "x")
    start = threading.Barrier(8)

    def work(_: int) -> list[str]:
        start.wait()
        taken = (table.take(TOOLS["compute"], claim, USERS["A"], None, 0.0)[0] for _ in range(50))
        return [run.bet for run in taken if run is not None]

    with ThreadPoolExecutor(8) as pool:
        served = [bet for bets in pool.map(work, range(8)) for bet in bets]
    assert len(served) == len(set(served)) == 200


class Node:
    def __init__(self) -> None:
        self.me = self
        self.data = b"x" * 500


class Slots:
    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = "x" * 5000


class Nasty:
    @property
    def nbytes(self) -> int:
        raise RuntimeError("no")


class Lying:
    nbytes = "many"


@pytest.mark.parametrize(
    ("value", "least"),
    [
        ("x" * 5000, 5000),
        (b"x" * 5000, 5000),
        ({"a": ["x" * 5000]}, 5000),
        (["x" * 10] * 1000, 10_000),
        (["x" * 1000] * 50_000, 40_000_000),
        (Node(), 500),
        (Slots(), 5000),
        (Nasty(), 0),
        (Lying(), 0),
        (None, 0),
    ],
    ids=["text", "bytes", "nested", "many", "very many", "cycle", "slots", "raises", "lies", "nothing"],
)
def test_sizes_are_roughly_right_and_never_an_error(value, least):
    assert least <= approximate_bytes(value) < 10**9
