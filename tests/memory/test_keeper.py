"""Memories of tenants: kept over restarts, forgotten on demand and everywhere, and nobody ever waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from agentspec.calls import ToolCall
from agentspec.memory.keeper import Keeper
from agentspec.memory.store import Limits, MemoryStore
from agentspec.recollection import Forecast, Past, Question, Recalled
from agentspec.trajectory import Said

QUICK = Limits(look_every_s=0.15, pause_s=0.2, save_every=10)


class Names:
    """A memory that knows which trajectories it has learnt, and how far."""

    version = 1

    def __init__(self, gate: threading.Event | None = None, hangs: threading.Event | None = None) -> None:
        self._lengths: dict[str, int] = {}
        self.restored = 0
        self._gate, self._hangs = gate, hangs

    def forecast(self, question: Question) -> Forecast:
        return Forecast(0.0, tuple(Recalled(ToolCall(name, {}), 1.0) for name in sorted(self._lengths)))

    def learn(self, past: Past) -> None:
        if self._hangs is not None:
            self._hangs.set()
        if self._gate is not None:
            self._gate.wait()
        if past.trajectory.startswith("bad"):
            raise RuntimeError("cannot")
        self._lengths[past.trajectory] = len(past.history)

    def dump(self) -> bytes:
        return json.dumps([self.version, self._lengths]).encode()

    def restore(self, blob: bytes) -> None:
        version, lengths = json.loads(blob)
        if version != self.version:
            raise ValueError("another version")
        self._lengths, self.restored = lengths, len(lengths)


def past(name: str, scope: str = "s", length: int = 1) -> Past:
    return Past(name, scope, tuple(Said("user", bytes([n]) * 16) for n in range(length)))


def known(keeper: Keeper, tenant: str = "a") -> list[str]:
    question = Question("q", "s", (), {})
    return [one.call.name for one in keeper.of(tenant).forecast(question).candidates]


def until(what: Callable[[], object], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


Make = Callable[..., Keeper]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Keeper] = []

    def keeper(store: MemoryStore | None, build: Callable[[], Names] = Names, limits: Limits = QUICK) -> Keeper:
        made.append(Keeper(store, build, limits))
        return made[-1]

    yield keeper
    for one in made:
        one.close()


@pytest.fixture
def store(database: str) -> MemoryStore:
    return MemoryStore(database)


# Learning and keeping


def test_what_was_learnt_is_there_after_a_restart(database: str, make: Make) -> None:
    first = make(MemoryStore(database))
    for n in range(25):
        first.learnt("a", past(f"t{n:02}"))
        first.learnt("b", past(f"u{n:02}"))
    first.close()
    store = MemoryStore(database)
    assert store.stats("a").trajectories == 25
    found = store.snapshot("a")
    assert found is not None
    assert found[0] == store.newest("a")
    second = make(store)
    until(lambda: len(known(second)) == 25)
    assert known(second, "a")[0] == "t00"
    memory = second.of("a")
    assert isinstance(memory, Names)
    assert memory.restored == 25
    until(lambda: len(known(second, "b")) == 25)


def test_what_came_after_the_snapshot_is_learnt_from_the_store(store: MemoryStore, make: Make) -> None:
    for n in range(5):
        store.remember("a", past(f"t{n}"))
    upto = store.newest("a")
    store.save_snapshot("a", upto, b'[1, {"snapshot": 1}]', 0)
    store.remember("a", past("t2", length=4))
    store.remember("a", past("t5"))
    keeper = make(store)
    until(lambda: known(keeper) == ["snapshot", "t2", "t5"])


@pytest.mark.parametrize("blob", [b'[2, {"odd": 1}]', b"nonsense", b""])
def test_a_snapshot_of_another_version_is_replaced_by_its_trajectories(
    store: MemoryStore, make: Make, blob: bytes
) -> None:
    for n in range(5):
        store.remember("a", past(f"t{n}"))
    store.save_snapshot("a", store.newest("a"), blob, 0)
    keeper = make(store, limits=replace(QUICK, replayed=3))
    until(lambda: known(keeper) == ["t2", "t3", "t4"])


def test_every_so_often_a_snapshot_is_made_and_the_store_is_trimmed(store: MemoryStore, make: Make) -> None:
    keeper = make(store, limits=replace(QUICK, max_trajectories=20))
    for n in range(50):
        keeper.learnt("a", past(f"t{n:02}"))
    until(lambda: (found := store.snapshot("a")) and b"t49" in found[1])
    until(lambda: store.stats("a").trajectories == 20)
    assert len(known(keeper)) == 50


def test_a_growing_trajectory_is_kept_as_it_is_last(store: MemoryStore, make: Make) -> None:
    keeper = make(store)
    for length in range(1, 30):
        keeper.learnt("a", past("t", length=length))
    keeper.close()
    assert [len(one.history) for _, one in store.pasts("a")] == [29]


def test_what_comes_before_it_is_loaded_is_not_lost(store: MemoryStore, make: Make) -> None:
    store.remember("a", past("old"))
    keeper = make(store)
    keeper.learnt("a", past("new"))
    until(lambda: known(keeper) == ["new", "old"])


def test_only_so_many_tenants_are_in_memory_and_none_is_lost(store: MemoryStore, make: Make) -> None:
    keeper = make(store, limits=replace(QUICK, max_tenants=3))
    for n in range(10):
        keeper.learnt(f"tenant{n}", past(f"t{n}"))
    until(lambda: len(store.tenants()) == 10)
    assert len(keeper._shelves) == 3
    for n in range(10):
        until(lambda n=n: known(keeper, f"tenant{n}") == [f"t{n}"])  # type: ignore[misc]


def test_without_a_store_it_lasts_as_long_as_the_process(make: Make) -> None:
    keeper = make(None)
    keeper.learnt("a", past("one"))
    until(lambda: known(keeper) == ["one"])
    assert known(keeper, "b") == []
    assert keeper.forget_trajectory("a", "one").result(10) == 0
    assert known(keeper) == []
    keeper.learnt("a", past("two"))
    until(lambda: known(keeper) == ["two"])
    assert keeper.unkept == 0


def test_a_trajectory_that_cannot_be_learnt_costs_no_other(store: MemoryStore, make: Make) -> None:
    keeper = make(store)
    for name in ("one", "bad1", "two", "bad2"):
        keeper.learnt("a", past(name))
    until(lambda: known(keeper) == ["one", "two"])
    keeper.close()
    assert keeper.failed == 2
    assert store.stats("a").trajectories == 4


def test_a_trajectory_that_cannot_be_kept_costs_no_other(store: MemoryStore, make: Make) -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    odd = Past("odd", "s", (Said("assistant", bytes(16), (ToolCall("f", {"a": deep}),)),))
    keeper = make(store)
    for one in (past("one"), odd, past("two")):
        keeper.learnt("a", one)
    keeper.close()
    assert keeper.unkept == 1
    assert sorted(one.trajectory for _, one in store.pasts("a")) == ["one", "two"]


# Forgetting


def test_what_is_forgotten_is_out_of_forecasts_at_once_and_stays_out(database: str, make: Make) -> None:
    store = MemoryStore(database)
    keeper = make(store)
    for n in range(12):
        keeper.learnt("a", past(f"t{n:02}", f"s{n % 2}"))
    until(lambda: len(known(keeper)) == 12 and store.snapshot("a"))
    done = keeper.forget_trajectory("a", "t00")
    assert "t00" not in known(keeper)
    assert done.result(10) == 1
    until(lambda: len(known(keeper)) == 11)
    assert keeper.forget_scope("a", "s1").result(10) == 6
    assert "t01" not in known(keeper)
    until(lambda: known(keeper) == ["t02", "t04", "t06", "t08", "t10"])
    keeper.close()
    again = make(MemoryStore(database))
    until(lambda: known(again) == ["t02", "t04", "t06", "t08", "t10"])
    assert again.forget_tenant("a").result(10) == 5
    assert known(again) == []
    again.close()
    assert MemoryStore(database).tenants() == []


def test_what_was_queued_before_is_forgotten_too_and_what_came_after_is_learnt(store: MemoryStore, make: Make) -> None:
    keeper = make(store)
    keeper.learnt("a", past("t", "s"))
    keeper.learnt("a", past("other", "elsewhere"))
    done = keeper.forget_scope("a", "s")
    keeper.learnt("a", past("late", "s"))
    assert done.result(10) == 1
    until(lambda: known(keeper) == ["late", "other"])
    until(lambda: sorted(one.trajectory for _, one in store.pasts("a")) == ["late", "other"])


def test_what_was_queued_before_is_not_even_learnt_for_a_moment(store: MemoryStore, make: Make) -> None:
    gate, hangs = threading.Event(), threading.Event()
    learnt: list[str] = []

    class Told(Names):
        def learn(self, past: Past) -> None:
            super().learn(past)
            learnt.append(past.trajectory)

    keeper = make(store, lambda: Told(gate, hangs))
    keeper.learnt("b", past("busy"))
    assert hangs.wait(20)
    keeper.learnt("a", past("t"))
    done = keeper.forget_trajectory("a", "t")
    gate.set()
    assert done.result(20) == 1
    keeper.close()
    assert learnt == ["busy"]


def test_forgetting_while_it_is_being_loaded(store: MemoryStore, make: Make) -> None:
    gate, hangs = threading.Event(), threading.Event()
    for n in range(5):
        store.remember("a", past(f"t{n}"))
    keeper = make(store, lambda: Names(gate, hangs))
    assert known(keeper) == []
    assert hangs.wait(20)
    done = keeper.forget_trajectory("a", "t3")
    gate.set()
    until(lambda: known(keeper))
    assert known(keeper) == ["t0", "t1", "t2", "t4"]
    assert done.result(10) == 1


def test_knowledge_that_is_made_anew_serves_when_it_is_whole(store: MemoryStore, make: Make) -> None:
    keeper = make(store)
    for n in range(5):
        keeper.learnt("a", past(f"t{n}"))
    until(lambda: store.stats("a").trajectories == 5)
    keeper.forget_trajectory("a", "t3")
    seen = []
    until(lambda: seen.append(known(keeper)) or seen[-1])  # type: ignore[func-returns-value]
    assert seen[0] in ([], ["t0", "t1", "t2", "t4"])
    assert seen[-1] == ["t0", "t1", "t2", "t4"]


def test_forgetting_for_a_tenant_that_is_not_in_memory(store: MemoryStore, make: Make) -> None:
    store.remember("a", past("t"))
    assert make(store).forget_trajectory("a", "t").result(10) == 1
    assert store.tenants() == []


_FORGET = "import sys; from agentspec.memory.store import MemoryStore; MemoryStore(sys.argv[1]).forget_scope('a', 's0')"


def test_another_process_that_forgets_is_noticed(database: str, make: Make) -> None:
    store = MemoryStore(database)
    keeper = make(store)
    for n in range(6):
        keeper.learnt("a", past(f"t{n}", f"s{n % 2}"))
    until(lambda: len(known(keeper)) == 6)
    until(lambda: store.stats("a").trajectories == 6)
    subprocess.run([sys.executable, "-c", _FORGET, database], check=True, timeout=100)
    until(lambda: known(keeper) == ["t1", "t3", "t5"])
    keeper.close()
    assert [one.trajectory for _, one in store.pasts("a")] == ["t1", "t3", "t5"]
    found = store.snapshot("a")
    assert found is None or b"t0" not in found[1]


def test_what_was_queued_when_another_process_forgot_is_not_kept(database: str, make: Make) -> None:
    store = MemoryStore(database)
    keeper = make(store, limits=replace(QUICK, look_every_s=3600))
    keeper.learnt("a", past("t"))
    until(lambda: store.stats("a").trajectories == 1)
    store.forget_tenant("a")
    keeper.learnt("a", past("t", length=2))
    until(lambda: keeper.dropped == 1)
    assert known(keeper) == []
    assert store.stats("a").trajectories == 0
    keeper.learnt("a", past("new"))
    until(lambda: known(keeper) == ["new"])


def test_two_processes_learn_from_each_other(database: str, make: Make) -> None:
    one, other = make(MemoryStore(database)), make(MemoryStore(database))
    assert known(one) == known(other) == []
    for n in range(15):
        one.learnt("a", past(f"one{n:02}"))
        other.learnt("a", past(f"two{n:02}"))
    until(lambda: len(known(one)) == len(known(other)) == 30)
    one.close()
    other.close()
    found = MemoryStore(database).snapshot("a")
    assert found is not None
    assert len(json.loads(found[1])[1]) == 30


# Nobody waits


def test_a_memory_that_hangs_keeps_nobody_waiting(store: MemoryStore, make: Make) -> None:
    gate, hangs = threading.Event(), threading.Event()
    keeper = make(store, lambda: Names(gate, hangs), replace(QUICK, max_queued=50, close_s=0.2))
    keeper.learnt("a", past("t"))
    assert hangs.wait(20)
    began = time.monotonic()
    for n in range(500):
        keeper.learnt("a", past(f"t{n}"))
        keeper.of("a")
        keeper.of(f"tenant{n}")
    done = keeper.forget_trajectory("a", "t0")
    keeper.close()
    assert time.monotonic() - began < 2.0
    assert not done.done()
    assert keeper.dropped > 300
    assert keeper._queue.qsize() < 200
    gate.set()
    assert done.result(20) in (0, 1)


def test_the_event_loop_runs_on_while_the_database_is_locked(tmp_path: Path, make: Make) -> None:
    file = tmp_path / "m.sqlite3"
    keeper = make(MemoryStore(f"sqlite:///{file}"))

    async def ask() -> float:
        worst_s, end = 0.0, time.monotonic() + 0.5
        while time.monotonic() < end:
            began = time.monotonic()
            keeper.learnt("a", past("t"))
            keeper.of("a")
            worst_s = max(worst_s, time.monotonic() - began)
            await asyncio.sleep(0.001)
        return worst_s

    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert asyncio.run(ask()) < 0.2
        other.execute("COMMIT")


def test_a_database_that_is_away_costs_one_line_and_only_what_is_not_kept(
    tmp_path: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "m.sqlite3"
    store = MemoryStore(f"sqlite:///{file}")
    keeper = make(store)
    keeper.learnt("a", past("before"))
    until(lambda: known(keeper) == ["before"] and store.stats("a").trajectories == 1)
    with sqlite3.connect(file) as other, caplog.at_level(logging.WARNING):
        other.execute("ALTER TABLE memory_generations RENAME TO elsewhere")
        other.commit()
        for n in range(20):
            keeper.learnt("a", past(f"t{n:02}"))
        until(lambda: len(known(keeper)) == 21)
        until(lambda: keeper.unkept == 20)
        with pytest.raises(sa.exc.SQLAlchemyError):
            keeper.forget_trajectory("a", "before").result(20)
        time.sleep(0.6)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 1
        assert lines[0].startswith("memory: the database is away, nothing is kept: ")
        assert "\n" not in lines[0]
        other.execute("ALTER TABLE elsewhere RENAME TO memory_generations")
        other.commit()
    until(lambda: "before" in known(keeper))
    keeper.learnt("a", past("after"))
    until(lambda: "after" in known(keeper))
    keeper.close()
    assert keeper.unkept == 20


class Road:
    """A port that leads to the PostgreSQL server, until it is closed."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._open = [self._listener]
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, far = self._listener.accept()[0], socket.create_connection(("127.0.0.1", 5432))
                self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_a_server_that_stops_costs_what_is_not_kept_and_one_that_comes_back_is_used(
    postgres: str, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    road = Road()
    keeper = make(MemoryStore(postgres.replace("127.0.0.1:5432", f"127.0.0.1:{road.port}")))
    store = MemoryStore(postgres)
    keeper.learnt("a", past("before"))
    until(lambda: store.stats("a").trajectories == 1)
    road.close()
    with caplog.at_level(logging.WARNING):
        for n in range(10):
            keeper.learnt("a", past(f"t{n}"))
        until(lambda: len(known(keeper)) == 11 and keeper.unkept == 10)
        with pytest.raises(sa.exc.OperationalError):
            keeper.forget_trajectory("a", "before").result(20)
        assert known(keeper) == []
        time.sleep(0.5)
    assert len(caplog.records) == 1
    road = Road(road.port)
    until(lambda: known(keeper) == ["before"])
    keeper.learnt("a", past("after"))
    until(lambda: store.stats("a").trajectories == 2)
    assert keeper.unkept == 10
    keeper.close()
    road.close()


def test_a_database_that_comes_back_gives_what_it_held_and_nothing_learnt_meanwhile_is_lost(
    tmp_path: Path, make: Make
) -> None:
    file = tmp_path / "m.sqlite3"
    store = MemoryStore(f"sqlite:///{file}")
    store.remember("a", past("old"))
    with sqlite3.connect(file) as other:
        other.execute("ALTER TABLE memory_trajectories RENAME TO elsewhere")
        other.commit()
        keeper = make(store)
        keeper.learnt("a", past("new"))
        until(lambda: known(keeper) == ["new"])
        other.execute("ALTER TABLE elsewhere RENAME TO memory_trajectories")
        other.commit()
    until(lambda: known(keeper) == ["new", "old"])


def test_closing_twice_and_asking_after_the_end_hurts_nobody(store: MemoryStore, make: Make) -> None:
    keeper = make(store)
    keeper.learnt("a", past("t"))
    keeper.close()
    keeper.close()
    keeper.learnt("a", past("u"))
    assert keeper.dropped == 1
    assert known(keeper) == ["t"]
    with pytest.raises(RuntimeError, match="nothing was forgotten"):
        keeper.forget_trajectory("a", "t").result(1)
    assert not keeper._thread.is_alive()
