"""What happened before is run ahead when it happens again: for the same user, over restarts, until it is forgotten."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentspec import speculate
from agentspec.memory.recall import Recall
from agentspec.memory.store import MemoryStore
from agentspec.proxy.cli import main
from tests.contract.scripted import Gate, asks_for, call, calls_end, eventually, say, speaks
from tests.contract.turns import SERVED

ANNA, BERT = {"x-agentspec-scope": "anna"}, {"x-agentspec-scope": "bert"}
SECRET = "order-of-anna-7431"
MEMORYS = ("recall", "recall_in_step", "chain", "chain_blind")
"""Whose guesses are memory's."""


class Shop:
    """Two reads that take long enough to be worth a guess; `ran` opens when `get` has begun."""

    def __init__(self) -> None:
        self.ran = Gate()

        @speculate(effect="read", stable_for=30.0)
        def find(name: str) -> str:
            time.sleep(0.03)
            return f"{name} is a customer"

        @speculate(effect="read", stable_for=30.0)
        def get(key: str) -> str:
            if key == SECRET:
                self.ran.open()
            time.sleep(0.03)
            return f"{key} is on its way"

        self.tools = (find, get)


class Scene:
    """A proxy with memory; agents that find a customer and then get the order that nothing else has told of."""

    def __init__(self, start: Any, join: Any, agent_of: Any, endpoint: Any, database: str) -> None:
        self._start, self._join, self._agent_of, self._endpoint = start, join, agent_of, endpoint
        self.database, self.shop = database, Shop()

    def start(self, **settings: Any) -> Scene:
        kept = {"memory": True, "memory_database": self.database, "memory_idle_s": 0.05}
        kept["max_discarded_share"] = 1.0  # four conversations are soon said; the bound wants to see more of them
        self.proxy = self._start(**(kept | settings))
        self.bets_before = len(self.proxy.bets())
        self.runtime = self._join(self.proxy, *self.shop.tools)
        return self

    def restart(self) -> Scene:
        self.runtime.close()
        self.proxy.stop()
        return self.start()

    def talk(self, gated: bool = False, pause: Any = None, **headers: str) -> list[Any]:
        """One conversation; gated: its second call comes when it has run ahead. The guesses of memory meanwhile."""
        self.shop.ran = Gate()
        known = self.known()

        def script(exchange: Any, number: int) -> Any:
            told = sum(message["role"] == "tool" for message in exchange.body["messages"])
            if told == 0:
                return [0.05, *asks_for("find", {"name": "Anna"}, id="call_1")]  # memory has time to say something
            after = self.shop.ran if gated else None
            return asks_for("get", {"key": SECRET}, after=after, id="call_2") if told == 1 else speaks()

        self._endpoint.script = script
        agent = self._agent_of(self.runtime, *self.shop.tools, **headers)
        assert agent.turn() == ["Anna is a customer"]
        if pause is not None:
            eventually(pause)
        assert agent.turn() == [f"{SECRET} is on its way"]
        assert agent.turn() == []
        return self.guesses(known)

    def talk_at_once(self, gated: bool = False, **headers: str) -> list[Any]:
        """The same with both calls in one answer."""
        self.shop.ran = Gate()
        known = self.known()

        def script(exchange: Any, number: int) -> Any:
            if exchange.body["messages"][-1]["role"] == "tool":
                return speaks()
            first, second = call("find", {"name": "Anna"}, "c1", 0), call("get", {"key": SECRET}, "c2", 1)
            return [say("Both."), *first, *([self.shop.ran] if gated else []), *second, *calls_end()]

        self._endpoint.script = script
        agent = self._agent_of(self.runtime, *self.shop.tools, **headers)
        assert agent.turn() == ["Anna is a customer", f"{SECRET} is on its way"]
        assert agent.turn() == []
        return self.guesses(known)

    def guesses(self, known: set[str]) -> list[Any]:
        """Memory's guesses, without those that are known already; every one has its outcome."""
        books = self.proxy.deps.desk.books

        def settled() -> bool:
            return not books._open and len(self.proxy.bets()) == self.bets_before + sum(books.counts.values())

        eventually(settled, "every bet is settled and in the ledger")
        return [bet for bet in self.proxy.bets() if bet["predictor"] in MEMORYS and bet["id"] not in known]

    def known(self) -> set[str]:
        return {bet["id"] for bet in self.proxy.bets()}

    def learnt(self, count: int) -> Scene:
        """Wait until so many trajectories are kept."""
        store = MemoryStore(self.database)
        eventually(lambda: sum(store.stats(tenant).trajectories for tenant in store.tenants()) >= count, "learnt")
        store.close()
        return self

    def tenant(self) -> str:
        store = MemoryStore(self.database)
        (found,) = store.tenants()
        store.close()
        return found

    def loaded(self) -> bool:
        shelves = self.proxy.deps.desk.learner._memories._shelves.values()
        return bool(shelves) and all(shelf.loaded for shelf in shelves)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def scene(start: Any, join: Any, agent_of: Any, endpoint: Any, tmp_path: Path) -> Scene:
    return Scene(start, join, agent_of, endpoint, f"sqlite:///{tmp_path / 'memory.sqlite3'}")


def knows(guesses: list[Any]) -> bool:
    """Whether one of these guesses holds what only a memory can know."""
    return any(SECRET in bet["arguments"] for bet in guesses)


def served(guesses: list[Any]) -> bool:
    return any(bet["outcome"] in SERVED and json.loads(bet["arguments"]) == {"key": SECRET} for bet in guesses)


def taught(scene: Scene, **settings: Any) -> Scene:
    scene.start(**settings)
    for _ in range(4):
        scene.talk(**ANNA)
    return scene.learnt(4)


def test_what_came_before_is_served_ahead_of_time_and_within_its_scope(scene):
    taught(scene)
    assert served(scene.talk(gated=True, **ANNA))
    assert not knows(scene.talk(**BERT))
    assert not knows(scene.talk())
    assert not knows(scene.talk(**{"x-agentspec-session": "anna"}))
    assert scene.proxy.deps.desk.books.faults == {}


def test_an_operator_may_make_a_tenant_one_scope(scene):
    taught(scene, memory_scope="tenant")
    assert served(scene.talk(gated=True, **BERT))


def test_the_second_of_two_parallel_calls_is_recalled(scene):
    scene.start()
    for _ in range(4):
        scene.talk_at_once(**ANNA)
    assert served(scene.learnt(4).talk_at_once(gated=True, **ANNA))


def test_switched_off_it_neither_guesses_nor_learns(scene, tmp_path):
    scene.start(memory=False)
    for _ in range(3):
        assert scene.talk(**ANNA) == []
    assert not list(tmp_path.glob("memory.sqlite3*"))
    assert scene.proxy.deps.desk.learner is None


def test_without_a_database_it_lasts_as_long_as_the_process(scene, tmp_path):
    scene.start(memory_database="")
    for _ in range(4):
        scene.talk(**ANNA)
    (shelf,) = scene.proxy.deps.desk.learner._memories._shelves.values()
    eventually(lambda: len(shelf.memory.learnt) == 4)
    assert served(scene.talk(gated=True, **ANNA))
    assert not list(tmp_path.glob("**/memory.sqlite3*"))


def test_a_restarted_proxy_still_knows(scene):
    taught(scene).restart()
    assert served(scene.talk(gated=True, pause=scene.loaded, **ANNA))


def test_a_proxy_that_ends_tells_what_was_not_quiet_yet(scene):
    scene.start(memory_idle_s=600.0)
    scene.talk(**ANNA)
    scene.runtime.close()
    scene.proxy.stop()
    scene.learnt(1)


def test_what_is_to_be_forgotten_is_forgotten(scene, monkeypatch):
    taught(scene)
    scene.runtime.close()
    scene.proxy.stop()
    command = ["agentspec", "memory", "forget", "--tenant", scene.tenant(), "--scope", "anna"]
    monkeypatch.setattr(sys, "argv", [*command, "--database", scene.database])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    scene.start()
    assert not knows(scene.talk(pause=scene.loaded, **ANNA))


def test_a_memory_that_fails_costs_a_count_and_nothing_else(scene, monkeypatch):
    def fails(*_: Any) -> Any:
        raise RuntimeError("forgot how to remember")

    monkeypatch.setattr(Recall, "forecast", fails)
    scene.start()
    assert scene.talk(**ANNA) == []
    status = httpx.get(f"{scene.proxy.url}/agentspec/status", trust_env=False).json()
    assert list(status["faults"]) == ["recall", "chain"]


def test_a_memory_that_hangs_holds_nothing_up(scene, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(Recall, "forecast", lambda *_: released.wait(30) and 1 / 0)
    scene.start()
    began_s = time.monotonic()
    for _ in range(8):
        assert scene.talk(**ANNA) == []
    assert scene.proxy.deps.desk.learner.counts()["skipped"] > 0
    assert time.monotonic() - began_s < 8
    began_s = time.monotonic()
    scene.runtime.close()
    scene.proxy.stop()
    assert time.monotonic() - began_s < 9
    released.set()
