"""The model's answer reaches the agent byte for byte and at once, whatever the speculators do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.protocols import Prediction
from tests.contract.scripted import DONE, Gate, Reply, asks_for, call, calls_end, event, eventually, say, speaks
from tests.contract.support import BOTH_WAYS, Agent, Guesses, plain_client

pytestmark = BOTH_WAYS

ODD_STREAM = [
    b": a comment\r\n\r\n",
    event({"role": "assistant", "content": "", "reasoning_content": "so\u2028so", "x_vendor": {"kept": [1, 2.50]}}),
    b'data: {"choices":[],"usage":null}\n',
    b"\ndata: {not json\n\n",
    *call("get_order", '{"order_id":  "A1" }', pieces=7),
    event({}, "tool_calls", usage={"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}),
    DONE[:9],
    DONE[9:],
]


class Hangs:
    """Never comes to an end of its own."""

    name = "hangs"

    def __init__(self) -> None:
        self.began, self.cancelled = Gate(), Gate()

    async def speculate(self, turn: Any, offer: Any) -> None:
        self.began.open()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.open()
            raise


class Raises:
    """Raises at once, or after a guess."""

    def __init__(self, error: BaseException, guess: ToolCall | None = None) -> None:
        self.name = f"raises {type(error).__name__}"
        self._error, self._guess = error, guess

    async def speculate(self, turn: Any, offer: Any) -> None:
        if self._guess is not None:
            offer(Prediction(self._guess, self.name, 0.99, 0.99))
        raise self._error


class Rubbish:
    """Offers what is no prediction."""

    name = "rubbish"

    def __init__(self, *offers: Any) -> None:
        self._offers = offers

    async def speculate(self, turn: Any, offer: Any) -> None:
        for rubbish in self._offers:
            offer(rubbish)


def prediction(name: Any, arguments: Any, sure: Any = 0.99) -> Prediction:
    return Prediction(ToolCall(name, arguments), "rubbish", sure, sure)


RUBBISH = {
    "nothing": None,
    "no prediction": "get_order",
    "no call": Prediction("get_order", "rubbish", 1.0, 1.0),  # type: ignore[arg-type]
    "arguments are a list": prediction("get_order", ["A1"]),
    "arguments are text": prediction("get_order", "A1"),
    "arguments are nothing": prediction("get_order", None),
    "arguments are no JSON": prediction("get_order", {"order_id": object()}),
    "a lone surrogate": prediction("get_order", {"order_id": "\ud800"}),
    "unknown tool": prediction("drop_tables", {}),
    "no name": prediction(None, {}),
    "a name that is a list": prediction(["get_order"], {}),
    "confidence is text": prediction("get_order", {"order_id": "R1"}, "high"),
    "confidence is not a number": prediction("get_order", {"order_id": "R2"}, float("nan")),
    "arguments do not fit": prediction("get_order", {"order": "A1"}),
}


@pytest.fixture
def tool() -> Callable[..., str]:
    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def get_order(order_id: str) -> str:
        return f"order {order_id}"

    return get_order


def relayed(runtime: Any, agent: Agent) -> bytes:
    body = {"model": "m", "messages": agent.messages, "tools": agent.schemas, "stream": True}
    with plain_client(runtime) as client:
        headers = {"authorization": "Bearer k"}
        answer = client.post(f"{runtime.base_url}/chat/completions", json=body, timeout=20, headers=headers)
    assert answer.status_code == 200
    return answer.content


def speculators() -> Iterator[Any]:
    yield pytest.param([], {"speculation": False}, id="off")
    yield pytest.param([], {}, id="on")
    yield pytest.param([Guesses(ToolCall("get_order", {"order_id": "A1"}))], {}, id="right")
    yield pytest.param([Hangs()], {}, id="hangs")
    for error in (KeyError("x"), asyncio.CancelledError(), MemoryError(), SystemExit(3), KeyboardInterrupt()):
        yield pytest.param([Raises(error)], {}, id=type(error).__name__)
        guess = ToolCall("get_order", {"order_id": "A1"})
        yield pytest.param([Raises(error, guess)], {}, id=f"{type(error).__name__} after a guess")
    yield pytest.param([Rubbish(*RUBBISH.values())], {}, id="rubbish")
    many = [ToolCall("get_order", {"order_id": str(i)}) for i in range(100)]
    yield pytest.param([Guesses(*many)], {}, id="a hundred calls")


@pytest.mark.parametrize(("chosen", "settings"), list(speculators()))
def test_the_bytes_are_the_endpoints_whatever_speculators_do(endpoint, start, join, agent_of, tool, chosen, settings):
    proxy = start(*chosen, **settings)
    runtime = join(proxy, tool)
    agent = agent_of(runtime, tool)
    endpoint.script = lambda exchange, number: ODD_STREAM
    for _ in range(2):
        assert relayed(runtime, agent) == b"".join(ODD_STREAM)
    with plain_client(runtime) as client:
        assert client.get(runtime.base_url.partition("/r/")[0] + "/healthz").status_code == 200
    endpoint.script = lambda exchange, number: asks_for("get_order", {"order_id": "A1"})
    assert agent.turn() == ["order A1"]


@pytest.mark.parametrize("what", RUBBISH)
def test_rubbish_of_one_speculator_costs_the_others_nothing(endpoint, start, join, agent_of, what):
    ran = Gate()

    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def get_order(order_id: str) -> str:
        if order_id == "A1":
            ran.open()
        return f"order {order_id}"

    proxy = start(Rubbish(RUBBISH[what]), Guesses(ToolCall("get_order", {"order_id": "A1"})))
    agent = agent_of(join(proxy, get_order), get_order)
    endpoint.answers(asks_for("get_order", {"order_id": "A1"}, after=ran))
    assert agent.turn() == ["order A1"]
    assert proxy.claimed()[0]["outcome"] in ("hit", "joined")
    counted = sum(proxy.deps.desk.books.counts.values())
    eventually(lambda: len(proxy.bets()) == counted, f"all of {proxy.deps.desk.books.counts} in the ledger", 3.0)


@pytest.mark.parametrize("what", RUBBISH)
def test_rubbish_in_one_turn_costs_the_next_turns_nothing(endpoint, start, join, agent_of, what):
    ran = Gate()

    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def get_order(order_id: str) -> str:
        if order_id == "A1":
            ran.open()
        return f"order {order_id}"

    once = iter([RUBBISH[what]])

    class FirstRubbishThenRight:
        name = "moody"

        async def speculate(self, turn, offer):
            for rubbish in once:
                offer(rubbish)
                return
            offer(Prediction(ToolCall("get_order", {"order_id": "A1"}), self.name, 0.99, 0.99))

    proxy = start(FirstRubbishThenRight())
    agent = agent_of(join(proxy, get_order), get_order)
    endpoint.answers(speaks(), asks_for("get_order", {"order_id": "A1"}, after=ran))
    agent.turn()
    agent.messages.append({"role": "user", "content": "and A1?"})
    assert agent.turn() == ["order A1"]
    assert proxy.claimed()[0]["outcome"] in ("hit", "joined")


def test_a_hanging_speculator_does_not_delay_its_turn_and_ends_with_it(endpoint, start, join, agent_of, tool):
    hangs = Hangs()
    proxy = start(hangs)
    agent = agent_of(join(proxy, tool), tool)
    endpoint.answers([say("x"), hangs.began, *speaks()])
    began = time.monotonic()
    agent.turn()
    assert time.monotonic() - began < 3.0
    assert hangs.cancelled.wait()


def test_bytes_arrive_at_once_and_not_when_the_answer_is_complete(endpoint, start, join, agent_of, tool):
    proxy = start(Guesses(ToolCall("get_order", {"order_id": "A1"})))
    runtime = join(proxy, tool)
    seen = Gate()
    endpoint.answers([say("first"), seen, say("second"), *calls_end()])
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "stream": True}
    url = f"{runtime.base_url}/chat/completions"
    with plain_client(runtime) as client, client.stream("POST", url, json=body, timeout=20) as answer:
        chunks = answer.iter_raw()
        assert b"first" in next(chunks)
        seen.open()
        assert b"second" in b"".join(chunks)


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
def test_an_error_of_the_endpoint_passes_unchanged(endpoint, start, join, agent_of, tool, status):
    proxy = start(Guesses(ToolCall("get_order", {"order_id": "A1"})))
    runtime = join(proxy, tool)
    body = json.dumps({"error": {"message": "no", "type": "x", "code": "y", "extra": [1]}}).encode()
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"7"), (b"x-request-id", b"r1")]
    endpoint.script = lambda exchange, number: Reply([body], status, headers)
    sent = {"model": "m", "messages": [], "tools": agent_of(runtime, tool).schemas, "stream": True}
    with plain_client(runtime) as client:
        answer = client.post(f"{runtime.base_url}/chat/completions", json=sent, timeout=20)
    assert (answer.status_code, answer.content) == (status, body)
    assert (answer.headers["retry-after"], answer.headers["x-request-id"]) == ("7", "r1")
    (bet,) = proxy.settled()
    assert bet["outcome"] in ("miss", "unclaimed")


def test_what_we_add_to_a_request_does_not_reach_the_endpoint(endpoint, start, join, agent_of, tool):
    proxy = start()
    runtime = join(proxy, tool)
    agent = agent_of(runtime, tool, **{"x-agentspec-session": "s1"})
    agent.turn()
    (exchange,) = endpoint.exchanges
    assert exchange.path == "/v1/chat/completions"
    assert not [name for name in exchange.headers if name.startswith("x-agentspec")]
    assert runtime.headers["x-agentspec-runtime"] not in exchange.raw.decode()
    assert exchange.headers["authorization"] == "Bearer k"
