"""Whose turn is it: repeated ids, equal requests in flight, retries, branches, sessions, unknown runtimes."""

from __future__ import annotations

import copy
import socket
import threading
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as ws_connect

from agentspec import channel, speculate
from agentspec.calls import ToolCall
from agentspec.tools_sandbox.tiers.thread import running_ahead
from tests.contract.scripted import Gate, asks_for, eventually, speaks
from tests.contract.support import Agent, Guesses

SERVED = ("hit", "joined")


class Get:
    def __init__(self) -> None:
        self.runs: list[str] = []
        self.ran: dict[str, Gate] = {}

        @speculate(effect="read", reads={"things"}, stable_for=30.0)
        def get(key: str) -> str:
            self.runs.append(key)
            self.gate(key).open()
            return f"{key}!"

        self.tool = get

    def gate(self, key: str) -> Gate:
        return self.ran.setdefault(key, Gate())


@pytest.fixture
def get() -> Get:
    return Get()


def by_length(turn: Any) -> list[ToolCall]:
    """Guess a key of its own for every turn of a conversation."""
    return [ToolCall("get", {"key": f"k{len(turn.history)}"})]


def script(get: Get, id: str = "functions.get:0"):
    def answer(exchange, number):
        key = f"k{len(exchange.body['messages'])}"
        return asks_for("get", {"key": key}, after=get.gate(key), id=id)

    return answer


def test_ids_that_repeat_in_every_turn_do_not_confuse_turns(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(by_length))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = script(get)
    for number in range(4):
        assert agent.turn() == [f"k{1 + 2 * number}!"]
    assert [bet["outcome"] in SERVED for bet in proxy.settled(4)] == [True] * 4
    assert len(get.runs) == 4
    trajectories = proxy._reader.trajectories()
    assert [t["turns"] for t in trajectories] == [4]


def test_sixteen_agents_with_one_question_at_once_each_get_the_right_thing(endpoint, start, join, agent_of):
    lock, runs, all_in = threading.Lock(), [], Gate()

    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> list[int]:
        with lock:
            runs.append(running_ahead())
            return [len(runs)]

    def answer(exchange, number):
        if number >= 15:
            all_in.open()
        return asks_for("get", {"key": "A"}, after=all_in, id="functions.get:0") if number < 16 else speaks()

    proxy = start(Guesses(lambda turn: [ToolCall("get", {"key": "A"})] if len(turn.history) == 1 else []))
    runtime = join(proxy, get)
    endpoint.script = answer
    agents = [agent_of(runtime, get, question="the same task") for _ in range(16)]
    results: list[Any] = [None] * 16

    def work(i: int) -> None:
        results[i] = agents[i].turn()[0]
        agents[i].think()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({result[0] for result in results}) == 16
    runtime.close()  # equal ids in equal conversations: which of them goes on cannot be told, so their bets wait
    eventually(lambda: len(proxy.bets()) == 16, "each bet has an outcome")
    assert sum(bet["outcome"] in SERVED for bet in proxy.bets()) == len(results) - runs.count(False)
    assert len(proxy._reader.trajectories(100)) >= 16


def test_a_retry_gives_up_the_bets_of_the_request_it_replaces(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(by_length))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = script(get)
    messages = copy.deepcopy(agent.messages)
    agent.think()
    assert not proxy.bets()
    agent.messages, agent.headers = messages, {"x-stainless-retry-count": "1"}
    get.ran.clear()
    assert agent.turn() == ["k1!"]
    assert sorted(bet["outcome"] in SERVED for bet in proxy.settled(2)) == [False, True]
    assert [bet["outcome"] for bet in proxy.bets() if bet["outcome"] not in SERVED] == ["unclaimed"]
    assert [t["turns"] for t in proxy._reader.trajectories()] == [2]


def test_two_branches_of_one_conversation_do_not_get_in_each_others_way(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(by_length))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = script(get)
    agent.turn()
    fork = copy.copy(agent)
    fork.messages = copy.deepcopy(agent.messages)
    agent.messages.append({"role": "user", "content": "left"})
    fork.messages.append({"role": "user", "content": "right"})
    lefts = agent.think()
    get.gate("k4").open()
    rights = fork.think()
    assert agent.act(lefts) == ["k4!"]
    assert fork.act(rights) == ["k4!"]
    eventually(lambda: len(proxy.bets()) == 3)
    assert len(get.runs) <= 4
    assert len(proxy._reader.trajectories()) == 2


def test_a_session_header_names_the_trajectory(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(by_length))
    agent = agent_of(join(proxy, get.tool), get.tool, **{"x-agentspec-session": "s-1"})
    endpoint.script = script(get)
    agent.turn()
    agent.messages = [{"role": "user", "content": "a summary of what was"}]  # compacted: no common prefix
    get.ran.clear()
    agent.turn()
    eventually(lambda: [t["turns"] for t in proxy._reader.trajectories()] == [2])
    assert "s-1" in proxy._reader.trajectories()[0]["trajectory"]


def test_a_framework_that_rewrites_arguments_is_recognised(endpoint, start, join, agent_of, get):
    """Arguments re-serialised, content null instead of empty, developer instead of system."""
    proxy = start(Guesses(by_length))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = script(get)
    agent.messages.insert(0, {"role": "system", "content": "be brief"})
    agent.turn()
    agent.messages[0]["role"] = "developer"
    agent.messages[2]["tool_calls"][0]["function"]["arguments"] = '{ "key":\n"k2" }'
    agent.messages[2]["content"] = None
    agent.turn()
    eventually(lambda: [t["turns"] for t in proxy._reader.trajectories()] == [2])


def test_two_keys_never_share_a_trajectory(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(by_length))
    runtime = join(proxy, get.tool)
    endpoint.script = script(get)
    agents = [agent_of(runtime, get.tool, question="q", Authorization=f"Bearer {who}") for who in "ab"]
    for agent in agents:
        assert agent.turn() == ["k1!"]
        assert agent.turn() == ["k3!"]
        get.ran.clear()
    eventually(lambda: sorted(t["turns"] for t in proxy._reader.trajectories()) == [2, 2])


def test_an_unknown_runtime_is_a_plain_relay(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(by_length))
    runtime = join(proxy, get.tool)
    schemas = agent_of(runtime, get.tool).schemas
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": schemas, "stream": True}
    for url, headers in (
        (f"{proxy.url}/r/{'x' * 32}/v1", {}),
        (f"{proxy.url}/v1", {"x-agentspec-runtime": "x" * 32}),
    ):
        answer = httpx.post(f"{url}/chat/completions", json=body, headers={"authorization": "Bearer k"} | headers)
        assert answer.status_code == 200
        assert b"All is well" in answer.content
    assert get.runs == []
    assert proxy.bets() == []


def test_a_runtime_in_a_header_is_found(endpoint, start, join, client_of, get):
    proxy = start(Guesses(by_length))
    runtime = join(proxy, get.tool)
    client = client_of(runtime).copy(
        base_url=f"{proxy.url}/v1", http_client=httpx.Client(), default_headers=runtime.headers
    )
    endpoint.script = script(get)
    assert Agent(client, [get.tool]).turn() == ["k1!"]
    assert proxy.claimed()[0]["outcome"] in SERVED


@pytest.mark.parametrize(("key", "asked"), [("k", True), ("another key", False)])
def test_without_a_name_the_runtime_is_found_only_under_its_own_key(endpoint, start, join, agent_of, get, key, asked):
    proxy = start(Guesses(by_length))
    schemas = agent_of(join(proxy, get.tool), get.tool).schemas
    get.gate("k1")
    endpoint.script = lambda exchange, number: [0.1, *speaks()]
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": schemas, "stream": True}
    httpx.post(f"{proxy.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})
    assert get.runs == (["k1"] if asked else [])


def test_if_two_runtimes_could_hold_the_tools_neither_is_asked(endpoint, start, join, agent_of, get):
    other = Get()
    proxy = start(Guesses(by_length))
    schemas = agent_of(join(proxy, get.tool), get.tool).schemas
    join(proxy, other.tool)
    endpoint.script = lambda exchange, number: [0.1, *speaks()]
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": schemas, "stream": True}
    httpx.post(f"{proxy.url}/v1/chat/completions", json=body, headers={"authorization": "Bearer k"})
    assert get.runs == other.runs == []


# The channel's doors


def hello(ws: Any, identity: str) -> None:
    ws.send(channel.encode(channel.Hello(identity, [])))


@pytest.mark.parametrize(
    "fields",
    ["Host: evil.example", "Host: evil.example:80", "Host: 127.0.0.1.evil.example", "Host: 127.0.0.1\r\nOrigin: http://x",
     "Host: 127.0.0.1\r\nOrigin: null", "Host: "],
)  # fmt: skip
def test_a_browser_page_cannot_open_the_channel(start, fields):
    proxy = start()
    request = (
        f"GET {channel.PATH} HTTP/1.1\r\n{fields}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=3) as connection:
        connection.sendall(request.encode())
        assert connection.recv(100).split()[1] in (b"400", b"403")


@pytest.mark.parametrize("identity", ["", "short", "x" * 23])
def test_a_guessable_id_is_not_served(start, identity):
    proxy = start()
    with ws_connect(f"{proxy.url.replace('http', 'ws')}{channel.PATH}", proxy=None) as ws:
        hello(ws, identity)
        with pytest.raises((TimeoutError, ConnectionClosed)):
            ws.recv(timeout=0.3)
    assert len(proxy.deps.runtimes) == 0


@pytest.mark.parametrize("frame", ["", "{", "[]", '{"type":"run"}', '{"type":"ran"}', "x" * 1000, b"\xff\xfe"])
def test_rubbish_on_the_channel_does_not_close_it(start, frame):
    proxy = start()
    with ws_connect(f"{proxy.url.replace('http', 'ws')}{channel.PATH}", proxy=None) as ws:
        ws.send(frame)
        hello(ws, "x" * 32)
        assert isinstance(channel.decode_from_proxy(ws.recv(timeout=3)), channel.Welcome)
    eventually(lambda: len(proxy.deps.runtimes) == 0)


def test_one_runtime_cannot_claim_or_settle_the_bets_of_another(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(by_length))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = script(get)
    calls = agent.think()
    (bet,) = proxy.deps.desk.books._open
    with ws_connect(f"{proxy.url.replace('http', 'ws')}{channel.PATH}", proxy=None) as ws:
        hello(ws, "y" * 32)
        assert isinstance(channel.decode_from_proxy(ws.recv(timeout=3)), channel.Welcome)
        ws.send(channel.encode(channel.Voided([bet], "stale", "mine")))
        ws.send(channel.encode(channel.Refused(bet, "mine")))
        ws.send(channel.encode(channel.Ran(bet, 1.0, "mine")))
        ws.send(channel.encode(channel.Claimed(1, "get", "{}", "hit", bet, 1.0, 1.0, "mine")))
        ws.send(channel.encode(channel.Ask(7, bet)))
        answer = channel.decode_from_proxy(ws.recv(timeout=3))
        assert isinstance(answer, channel.Grant)
        assert not answer.ok
    assert agent.act(calls) == ["k1!"]
    assert proxy.claimed()[-1]["outcome"] in SERVED
