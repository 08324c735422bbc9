"""The proxy dies and comes back, processes fork: agents and their tools go on as if agentspec were not there."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

import agentspec
from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.memory.ledger_reader import LedgerReader
from agentspec.tools_sandbox import handover
from agentspec.tools_sandbox.runtime import GRANT_LIMIT_S
from tests.contract.scripted import Gate, asks_for, call, calls_end, eventually, say, speaks
from tests.contract.support import Agent, Guesses, Proxy

SERVED = ("hit", "joined")


class Child:
    """The proxy as a process of its own, started as a user starts it."""

    def __init__(self, upstream: str, database: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "agentspec.proxy", "serve", "--upstream", upstream]
        command += ["--port", str(port), "--database", database]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", line)
        assert found, line
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def kill(self, how: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(how)
        return self.process.wait(10)


@pytest.fixture
def child(endpoint, tmp_path) -> Iterator[Callable[..., Child]]:
    """child(port): starts the proxy."""
    started: list[Child] = []

    def start(port: int = 0) -> Child:
        started.append(Child(endpoint.url, f"sqlite:///{tmp_path / 'child.sqlite3'}", port))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.kill()


class Get:
    def __init__(self) -> None:
        self.runs: list[str] = []
        self.ran = Gate()
        self.hold: Gate | None = None

        @speculate(effect="read", reads={"things"}, stable_for=30.0)
        def get(key: str) -> str:
            self.runs.append(key)
            self.ran.open()
            if self.hold and len(self.runs) == 1:  # only the first run
                self.hold.wait(8.0)
            return f"{key}!"

        self.tool = get


@pytest.fixture
def get() -> Get:
    return Get()


def two_calls(gate: Gate) -> list[Any]:
    """Two calls: the first starts ahead while the second is still written, without any speculator."""
    one, two = call("get", {"key": "A"}, "c0"), call("get", {"key": "B"}, "c1", 1)
    return [say("x"), *one, two[0], gate, *two[1:], *calls_end()]


@pytest.fixture
def connected(cleanup, client_of) -> Callable[[str, Get], tuple[Any, Agent]]:
    def made(url: str, get: Get) -> tuple[Any, Agent]:
        runtime = agentspec.connect(url, tools=[get.tool], api_key="k", wait_s=5.0)
        cleanup.callback(runtime.close)
        assert runtime.connected
        return runtime, Agent(client_of(runtime), [get.tool])

    return made


def test_a_killed_proxy_in_mid_run_is_not_missed_and_its_successor_is_found(endpoint, child, get, connected, tmp_path):
    proxy = child()
    runtime, agent = connected(proxy.url, get)
    get.hold = Gate()
    endpoint.answers(two_calls(get.ran))
    calls = agent.think()
    proxy.kill()
    assert agent.act(calls) == ["A!", "B!"]
    get.hold.open()
    get.hold = None
    for _ in range(2):  # straight to the endpoint
        agent.messages.append({"role": "user", "content": "again"})
        endpoint.script = lambda exchange, number: speaks()
        assert agent.think() == []
    assert not runtime.connected

    child(proxy.port)
    eventually(lambda: runtime.connected, "the runtime finds the new proxy", 15.0)
    time.sleep(2.0)  # as long as the transport avoids a proxy that was away
    get.ran = Gate()
    endpoint.script = lambda exchange, number: two_calls(get.ran)
    agent.messages.append({"role": "user", "content": "once more"})
    assert agent.turn() == ["A!", "B!"]
    reader = LedgerReader(f"sqlite:///{tmp_path / 'child.sqlite3'}")
    eventually(lambda: [c for c in reader.claims() if c["outcome"] in SERVED], "a hit with the new proxy")


def test_a_joined_call_whose_proxy_is_killed_ends_all_the_same(endpoint, child, get, connected):
    proxy = child()
    _, agent = connected(proxy.url, get)
    get.hold = Gate()
    endpoint.answers(two_calls(get.ran))
    made = agent.think()[0]
    threading.Timer(0.05, proxy.kill).start()
    began = time.monotonic()
    assert agent.act([made]) == ["A!"]
    assert time.monotonic() - began < 4.0
    get.hold.open()


def test_a_proxy_that_is_frozen_delays_a_tool_by_little(endpoint, child, get, connected, monkeypatch):
    monkeypatch.setattr(handover, "GRANT_LIMIT_S", GRANT_LIMIT_S)  # a user's, not this suite's
    proxy = child()
    _, agent = connected(proxy.url, get)
    endpoint.answers(two_calls(get.ran))
    calls = agent.think()
    proxy.process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert agent.act(calls) == ["A!", "B!"]
        assert time.monotonic() - began < 2.0
    finally:
        proxy.process.send_signal(signal.SIGCONT)


def test_a_proxy_asked_to_stop_books_what_is_open(endpoint, child, get, connected, tmp_path):
    proxy = child()
    _, agent = connected(proxy.url, get)
    endpoint.answers(two_calls(get.ran))
    agent.think()
    proxy.kill(signal.SIGTERM)
    reader = LedgerReader(f"sqlite:///{tmp_path / 'child.sqlite3'}")
    ran = [bet["outcome"] for bet in reader.bets() if bet["outcome"] != "vetoed"]
    assert ran in (["failed"], ["unclaimed"])
    assert len(reader.trajectories()) == 1


def test_an_async_client_goes_straight_to_the_endpoint_as_well(endpoint, child, get, connected):
    proxy = child()
    runtime, _ = connected(proxy.url, get)
    proxy.kill()

    async def ask() -> str:
        client = openai.AsyncOpenAI(base_url=runtime.base_url, api_key="k", http_client=runtime.async_http_client())
        async with client:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "q"}], stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(ask()) == "All is well."


def test_without_any_proxy_connect_does_not_fail_and_tools_run(get):
    runtime = agentspec.connect("http://127.0.0.1:9", tools=[get.tool], wait_s=0.1)
    assert not runtime.connected
    assert get.tool("A") == "A!"
    runtime.close()
    assert get.tool("A") == "A!"


def test_without_any_proxy_a_named_endpoint_is_used(endpoint, get, cleanup):
    runtime = agentspec.connect("http://127.0.0.1:9", tools=[get.tool], endpoint=endpoint.url, wait_s=0.1)
    cleanup.callback(runtime.close)
    with runtime.http_client() as client:
        answer = client.post(
            f"{runtime.base_url}/chat/completions", json={"model": "m", "messages": [], "stream": True}
        )
    assert answer.status_code == 200
    assert endpoint.exchanges[0].path == "/v1/chat/completions"


def test_an_unreachable_endpoint_is_an_error_of_the_api(start, join, get, client_of):
    proxy = Proxy("http://127.0.0.1:9/v1", "sqlite://", [])
    try:
        answer = httpx.post(f"{proxy.url}/v1/chat/completions", json={"model": "m", "messages": []})
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "upstream_unreachable"
    finally:
        proxy.stop()


# Forks


def in_child(work: Callable[[], Any]) -> str:
    """Run it in a forked process; what it returned or raised, as text. A child that hangs is an error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = str(work())
        except BaseException as error:
            answer = repr(error)
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    killer = threading.Timer(6.0, os.kill, (pid, signal.SIGKILL))
    killer.start()
    answer = b""
    while part := os.read(reading, 65536):
        answer += part
    os.close(reading)
    os.waitpid(pid, 0)
    killer.cancel()
    return answer.decode() or "hung"


def test_a_forked_child_runs_its_tools_plainly_and_the_parent_keeps_its_hits(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(ToolCall("get", {"key": "A"})))
    runtime = join(proxy, get.tool)
    agent = agent_of(runtime, get.tool)
    endpoint.answers(asks_for("get", {"key": "A"}, after=get.ran))
    calls = agent.think()
    assert in_child(lambda: (get.tool("A"), len(get.runs))) == "('A!', 2)"
    assert runtime.connected
    assert agent.act(calls) == ["A!"]
    assert get.runs == ["A"]
    assert proxy.claimed()[0]["outcome"] in SERVED
    assert len(proxy.deps.runtimes) == 1


def test_a_forked_child_is_a_runtime_of_its_own(start, join, get):
    proxy = start()
    runtime = join(proxy, get.tool)
    mine = runtime.base_url
    theirs = in_child(lambda: runtime.base_url if runtime.wait() else "not connected")
    assert theirs.startswith(f"{proxy.url}/r/")
    assert theirs != mine == runtime.base_url
    eventually(lambda: len(proxy.deps.runtimes) == 1, "the child has left")
    assert runtime.connected


def test_a_process_pool_runs_tools_plainly(start, join, get):
    proxy = start()
    runtime = join(proxy, get.tool)
    context = multiprocessing.get_context("fork")
    queue: Any = context.SimpleQueue()
    process = context.Process(target=lambda: queue.put((get.tool("A"), runtime.connected)))
    process.start()
    process.join(8)
    assert process.exitcode == 0
    assert queue.get() == ("A!", False)
    assert runtime.connected


def test_forks_under_load_never_hang_a_child_and_never_flood_the_log(start, join, caplog):
    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> str:
        return f"{key}!"

    runtime = join(start(), get)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            get("A")

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert [in_child(lambda: get("B")) for _ in range(10)] == ["B!"] * 10
        assert "/r/" in in_child(lambda: runtime.base_url)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(caplog.records) < 20, caplog.records[-1].getMessage()


def test_a_runtime_whose_id_begins_like_the_apis_root_is_reached(endpoint, start, monkeypatch):
    """One id in four thousand does."""
    monkeypatch.setattr("agentspec.tools_sandbox.connect.secrets.token_urlsafe", lambda size: "v1" + "x" * 30)
    proxy = start()
    with agentspec.connect(proxy.url, tools=(), endpoint="http://127.0.0.1:1/v1", wait_s=5.0) as runtime:
        endpoint.answers(speaks())
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}
        with runtime.http_client("httpx") as client:
            answer = client.post(f"{runtime.base_url}/chat/completions", json=body)
    assert (answer.status_code, answer.content) == (200, b"".join(speaks()))
