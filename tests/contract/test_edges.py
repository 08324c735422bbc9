"""Whatever else could go wrong around a turn: odd wires, big arguments, broken books, tools within tools, exits."""

from __future__ import annotations

import gc
import gzip
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from typing import Any

import httpx
import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.proxy.live import Live
from agentspec.tools_sandbox.declare import declared
from tests.contract.scripted import Gate, Reply, asks_for, call, calls_end, eventually, say, speaks
from tests.contract.support import Guesses, undeclared

SERVED = ("hit", "joined")
STREAM = (b"content-type", b"text/event-stream")


class Get:
    def __init__(self) -> None:
        self.runs: list[str] = []
        self.ran = Gate()

        @speculate(effect="read", reads={"things"}, stable_for=30.0)
        def get(key: str) -> str:
            self.runs.append(key)
            self.ran.open()
            return f"{key}!"

        self.tool = get


@pytest.fixture
def get() -> Get:
    return Get()


def guess_a(turn: Any) -> list[ToolCall]:
    return [ToolCall("get", {"key": "A"})]


def test_an_answer_that_arrives_byte_by_byte_is_understood(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(guess_a))
    agent = agent_of(join(proxy, get.tool), get.tool)
    whole = b"".join([say("Zürich \u2028 \U0001f600".encode().decode()), *call("get", {"key": "A"}), *calls_end()])
    endpoint.answers([get.ran, *(whole[i : i + 1] for i in range(len(whole)))])
    assert agent.turn() == ["A!"]
    assert proxy.claimed()[0]["outcome"] in SERVED


@pytest.mark.parametrize("ending", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_any_line_ending_is_understood(endpoint, start, join, agent_of, get, ending):
    proxy = start(Guesses(guess_a))
    runtime = join(proxy, get.tool)
    agent = agent_of(runtime, get.tool)
    parts = [say("x"), *call("get", {"key": "A"}), *calls_end()]
    endpoint.answers([get.ran, *(part.replace(b"\n\n", ending) for part in parts)])
    body = {"model": "m", "messages": agent.messages, "tools": agent.schemas, "stream": True}
    httpx.post(f"{runtime.base_url}/chat/completions", json=body)
    assert get.tool("A") == "A!"
    assert proxy.claimed()[0]["outcome"] in SERVED


def test_a_compressed_answer_passes_as_it_is_and_is_understood(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(guess_a))
    agent = agent_of(join(proxy, get.tool), get.tool)
    whole = gzip.compress(b"".join(asks_for("get", {"key": "A"})))  # type: ignore[arg-type]
    pieces = [whole[i : i + 40] for i in range(0, len(whole), 40)]
    endpoint.answers(Reply([get.ran, *pieces], headers=[STREAM, (b"content-encoding", b"gzip")]))
    assert agent.turn() == ["A!"]
    assert proxy.claimed()[0]["outcome"] in SERVED


def test_a_broken_compression_reaches_the_agent_unchanged(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(guess_a))
    runtime = join(proxy, get.tool)
    agent = agent_of(runtime, get.tool)
    endpoint.answers(Reply([b"no gzip at all"], headers=[STREAM, (b"content-encoding", b"gzip")]))
    body = {"model": "m", "messages": agent.messages, "tools": agent.schemas, "stream": True}
    with httpx.stream("POST", f"{runtime.base_url}/chat/completions", json=body) as answer:
        assert b"".join(answer.iter_raw()) == b"no gzip at all"
    assert len(proxy.settled()) == 1


@pytest.mark.parametrize("chunked", [True, False])
def test_an_answer_that_is_not_streamed_is_served_as_well(endpoint, start, join, agent_of, get, chunked):
    proxy = start(Guesses(guess_a))
    runtime = join(proxy, get.tool)
    agent = agent_of(runtime, get.tool)
    made = [{"id": "c", "type": "function", "function": {"name": "get", "arguments": '{"key":"A"}'}}]
    message = {"role": "assistant", "content": None, "tool_calls": made}
    raw = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).encode()
    headers = [(b"content-type", b"application/json")]
    headers += [] if chunked else [(b"content-length", str(len(raw)).encode())]
    for number in range(8):
        get.ran = Gate()
        endpoint.script = lambda exchange, _: Reply([get.ran, raw], 200, headers)
        body = {"model": f"m{number}", "messages": agent.messages, "tools": agent.schemas}
        assert httpx.post(f"{runtime.base_url}/chat/completions", json=body).content == raw
        assert get.tool("A") == "A!"
    assert [claim["outcome"] in SERVED for claim in proxy.claimed(8)] == [True] * 8


@pytest.mark.parametrize("size", [1_000_000, 20_000_000])
def test_a_call_with_big_arguments_does_not_break_the_channel(endpoint, start, join, agent_of, get, size):
    proxy = start(Guesses(guess_a))
    runtime = join(proxy, get.tool)
    (link,) = proxy.deps.runtimes._links.values()
    assert get.tool("x" * size) == "x" * size + "!"
    get.ran = Gate()
    endpoint.answers(asks_for("get", {"key": "A"}, after=get.ran))
    assert agent_of(runtime, get.tool).turn() == ["A!"]
    eventually(lambda: any(claim["outcome"] in SERVED for claim in proxy.claims()), "a hit", 5.0)
    assert list(proxy.deps.runtimes._links.values()) == [link], "the channel stayed open"


def test_a_tool_that_calls_another_tool_ahead_of_time_has_not_claimed_it(endpoint, start, join, agent_of, get):
    done = Gate()

    @speculate(effect="read", reads={"things"}, stable_for=30.0)
    def report(key: str) -> str:
        get.ran.wait()
        time.sleep(0.05)  # until the result of get is in
        found = get.tool(key)
        done.open()
        return f"report on {found}"

    proxy = start(Guesses(ToolCall("get", {"key": "A"}), ToolCall("report", {"key": "A"})))
    agent = agent_of(join(proxy, get.tool, report), get.tool, report)
    endpoint.answers([say("x"), done, *speaks()])
    assert agent.turn() == []
    assert {bet["tool"]: bet["outcome"] for bet in proxy.settled(2)} == {"get": "miss", "report": "miss"}


def test_broken_books_change_nothing_for_the_agent(endpoint, start, join, agent_of, get, tmp_path):
    proxy = start(Guesses(guess_a))
    agent = agent_of(join(proxy, get.tool), get.tool)
    with sqlite3.connect(tmp_path / "ledger.sqlite3") as connection:
        for table in ("turns", "bets", "claims", "probes"):
            connection.execute(f"DROP TABLE {table}")
    for _ in range(3):
        get.ran = Gate()
        endpoint.script = lambda exchange, number: asks_for("get", {"key": "A"}, after=get.ran, id=f"c{number}")
        assert agent.turn() == ["A!"]
    assert len(get.runs) == 3
    eventually(lambda: sum(proxy.deps.desk.books.counts[name] for name in SERVED) == 3)


def test_turns_with_calls_that_nobody_claims_do_not_pile_up_in_memory(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(guess_a))
    runtime = join(proxy, get.tool)
    endpoint.script = lambda exchange, number: asks_for("elsewhere", {"order_id": str(number)}, id=f"c{number}")
    agent = agent_of(runtime, get.tool)
    undeclared(agent, "elsewhere", lambda order_id: "ok")
    for _ in range(120):
        agent.messages = [{"role": "user", "content": "q"}]
        agent.think()
    eventually(lambda: len(proxy._reader.trajectories(200)) == 120)
    gc.collect()
    assert sum(isinstance(thing, Live) for thing in gc.get_objects()) < 40


SCRIPT = """
import threading, agentspec
@agentspec.speculate(effect="read", stable_for=30)
def get(key: str) -> str:
    return key
runtime = agentspec.connect({url!r}, wait_s=5)
assert runtime.connected and runtime.base_url
assert get("A") == "A"
"""


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "runtime.close()", "runtime.close(); runtime.close()"])
def test_a_script_ends_at_once_and_says_nothing(start, ending):
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(url=start().url) + ending],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - began < 8


def test_ctrl_c_while_a_call_waits_for_its_run_books_the_bet(ready, request):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    hold, began = Gate(), Gate()

    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> str:
        began.open()
        hold.wait(8.0)
        return key

    proxy, _ = ready(get, began)
    (runtime,) = declared(get).runtimes

    def interrupt() -> None:
        eventually(lambda: len(runtime.table) == 0, "the claim has taken the run")
        time.sleep(0.2)  # and waits for it
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        get("A")
    (bet,) = proxy.settled()
    assert bet["outcome"] in ("failed", "unclaimed")
    hold.open()
