"""Many agents at once, most of them badly behaved: afterwards everything is as it was at the start."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.scripted import Gate, asks_for, call, calls_end, eventually, say
from tests.contract.support import Agent, Guesses, undeclared

SERVED = ("hit", "joined")


def test_a_crowd_that_comes_and_goes_leaves_nothing_behind(endpoint, start, join, agent_of):
    """Cut connections in every phase, retries, errors; then one calm agent is served as ever."""
    ran = Gate()

    @speculate(effect="read", reads={"things"}, stable_for=30.0)
    def get(key: str) -> str:
        return key

    @speculate(effect="read", reads={"things"}, stable_for=30.0)
    def calm(key: str) -> str:
        ran.open()
        return key

    before = threading.active_count()
    proxy = start(Guesses(lambda turn: [ToolCall("get", {"key": turn.request.model})]))
    runtime = join(proxy, get, calm)
    schemas = agent_of(runtime, get).schemas

    def answer(exchange, number):
        dice = random.Random(number)
        parts: list[Any] = [say("x"), 0.01, *call("get", {"key": f"k{dice.randrange(5)}"}), 0.01, *calls_end()]
        return parts[: dice.randrange(1, len(parts) + 1)]

    endpoint.script = answer

    def rude(number: int) -> None:
        dice = random.Random(-number)
        body = {"model": f"k{dice.randrange(5)}", "messages": [{"role": "user", "content": str(dice.randrange(3))}]}
        body |= {"tools": schemas, "stream": True}
        headers = {"x-stainless-retry-count": dice.choice("0001")}
        patience = httpx.Timeout(5, read=dice.choice([0.005, 0.02, 5]))
        try:
            with httpx.stream(
                "POST", f"{runtime.base_url}/chat/completions", json=body, headers=headers, timeout=patience
            ) as reply:
                for _, chunk in zip(range(dice.randrange(6)), reply.iter_raw(), strict=False):
                    assert chunk
        except httpx.HTTPError:
            pass
        if dice.random() < 0.5:
            assert get(body["model"]) == body["model"]

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(rude, range(150)))
    eventually(lambda: all(e.finished.is_open or e.cancelled.is_open for e in endpoint.exchanges), "all have ended")
    (link,) = proxy.deps.runtimes._links.values()
    eventually(lambda: link.undecoded == 0, "no answer is waited for")
    endpoint.script = lambda exchange, number: asks_for("calm", {"key": "A"}, after=ran)
    proxy.deps.desk.speculators.append(Guesses(ToolCall("calm", {"key": "A"})))
    assert agent_of(runtime, calm, question="calm").turn() == ["A"]
    eventually(lambda: proxy.claimed()[-1]["outcome"] in SERVED, f"served, not {proxy.claimed()[-1]}")
    assert threading.active_count() < before + 40
    runtime.close()
    books = proxy.deps.desk.books
    eventually(lambda: not books._open, "no bet is open")
    eventually(lambda: len(proxy.bets()) == sum(books.counts.values()), "all are in the ledger")
    status = httpx.get(f"{proxy.url}/agentspec/status").json()
    assert (status["outcomes"], status["faults"], status["runtimes"]) == (books.counts, {}, 0)


def test_no_read_of_a_busy_hour_is_older_than_the_writes_before_it(endpoint, start, join, client_of):
    """Declared and undeclared writes, relayed or called by other code, beside reads of several agents."""
    versions = {"declared": 0, "undeclared": 0}
    lock = threading.Lock()
    stale: list[Any] = []

    def bump(which: str) -> str:
        with lock:
            versions[which] += 1
        return "ok"

    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def get() -> dict[str, int]:
        seen = dict(versions)
        time.sleep(0.025)  # less would not be worth a guess
        return seen

    @speculate(effect="write", writes={"orders"})
    def put(order_id: str = "") -> str:
        return bump("declared")

    def cancel(order_id: str = "") -> str:
        return bump("undeclared")

    proxy = start(Guesses(ToolCall("get", {})))
    runtime = join(proxy, get, put)

    def reply(exchange, number):
        dice = random.Random(number)
        writing = [["put"], ["cancel"], ["get", "put"], ["cancel", "get"]]
        names = dice.choice(writing) if dice.random() < 0.25 else ["get"]
        calls = [chunk for i, name in enumerate(names) for chunk in call(name, {}, f"c{number}.{i}", i)]
        return [say("x"), dice.choice([0.0, 0.005, 0.01]), *calls, *calls_end()]

    endpoint.script = reply
    over = threading.Event()

    def check(make: Any) -> None:
        before = dict(versions)
        result = make()
        if isinstance(result, dict) and any(result[which] < before[which] for which in before):
            stale.append((result, before))

    def work() -> None:
        agent = Agent(client_of(runtime), [get, put])
        undeclared(agent, "cancel", cancel)
        for _ in range(25):
            for made in agent.think():
                check(lambda made=made: agent.told(made, agent.tools[made.name](**made.arguments)))

    def other_code() -> None:
        while not over.wait(0.05):
            put()

    threads = [threading.Thread(target=work) for _ in range(4)]
    threads.append(threading.Thread(target=other_code))
    for thread in threads:
        thread.start()
    for thread in threads[:-1]:
        thread.join()
    over.set()
    threads[-1].join()
    assert stale == []
    assert min(versions.values()) > 3
    assert sum(claim["outcome"] in SERVED for claim in proxy.claimed()) > 0, "else nothing was tested"
