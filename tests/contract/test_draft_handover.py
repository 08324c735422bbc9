"""What a probe wrote is offered to its turn's engine as drafts: while the turn streams, to nobody else, at no cost."""

from __future__ import annotations

import json
import threading
from typing import Any

import openai
import pytest

import agentspec
from agentspec.calls import ToolCall
from agentspec.config import Engine
from agentspec.proxy import draft_offers
from tests.contract.sandboxed import When
from tests.contract.scripted import DONE, Gate, Reply, call, calls_end, event, eventually, say
from tests.contract.support import BOTH_WAYS, Agent, plain_client
from tests.contract.test_gate import Get, key
from tests.contract.test_probes_held_back import THINKS, is_probe, names, patient

pytestmark = BOTH_WAYS

TAKEN = Reply([b"{}"], headers=((b"content-type", b"application/json"),))
CALLS_A = '{"name": "get", "arguments": {"key": "A"}}'
OWN_ENGINES = [Engine.AGENTSPEC, Engine.VLLM]


@pytest.fixture
def get():
    made = Get()
    yield made
    made.go.open()


class Door:
    """The endpoint's turns, probes and door for drafts."""

    def __init__(self, endpoint: Any) -> None:
        self.endpoint = endpoint
        self.turn: Any = None
        self.probe: Any = lambda exchange: names(key("A"))
        self.drafts: Any = lambda exchange: TAKEN
        endpoint.script = self._script

    def _script(self, exchange: Any, number: int) -> Any:
        if exchange.path != "/v1/chat/completions":
            return self.drafts(exchange)
        return self.probe(exchange) if is_probe(exchange) else self.turn(exchange)

    @property
    def offered(self) -> list[Any]:
        beside = ("/v1/chat/completions", "/metrics")
        return [one for one in self.endpoint.exchanges if one.path not in beside]

    @property
    def turns(self) -> list[Any]:
        return [one for one in self.endpoint.exchanges if one.path == "/v1/chat/completions" and not is_probe(one)]

    def asks_for(self, name: str, *, after: Any = None, **usage: Any) -> None:
        """The turn calls get(name) once drafts were offered, or after something else."""
        after = When(lambda: self.offered) if after is None else after
        ended = [event({}, "tool_calls", usage=usage), DONE] if usage else calls_end()
        self.turn = lambda exchange: [say(THINKS), after, *call("get", {"key": name}), *ended]


@pytest.fixture
def door(endpoint) -> Door:
    return Door(endpoint)


@pytest.fixture
def agent(start, join, agent_of, get, door):
    """agent(**settings): an agent before a proxy that probes; the proxy as `agent.proxy`."""

    def made(**settings: Any) -> Agent:
        proxy = start(**({"engine": Engine.AGENTSPEC, "probe": True} | settings))
        runtime = join(proxy, get.tool)
        found = agent_of(runtime, get.tool)
        found.proxy, found.runtime = proxy, runtime
        return found

    return made


def rows(agent: Any, table: str) -> list[dict[str, Any]]:
    """The ledger's rows of the first turn."""
    reader = agent.proxy._reader
    turns = [turn for one in reader.trajectories() for turn in reader.turns(one["trajectory"])]
    return turns if table == "turns" else [row for turn in turns for row in turn[table]]


@pytest.mark.parametrize("engine", OWN_ENGINES)
def test_a_probe_that_guessed_wrong_is_a_draft_for_its_turn_while_it_streams(door, agent, engine):
    found = agent(engine=engine)
    taken = When(lambda: found.proxy.deps.desk.drafts.counts.taken)
    door.asks_for("B", after=taken, prompt_tokens=9, completion_tokens=20)
    assert found.turn() == ["B!"]
    (offer,) = door.offered
    (turn,) = door.turns
    assert (offer.path, offer.body["drafts"][0]) == ("/v1/drafts", CALLS_A)
    assert offer.body["request_id"] == turn.headers["x-request-id"]
    assert offer.headers["authorization"] == turn.headers["authorization"]
    found.proxy.claimed()
    (row,), (probe, *_) = rows(found, "turns"), rows(found, "probes")
    assert (row["drafts_taken"], probe["offered_chars"]) == (1, len(CALLS_A))
    assert found.proxy.deps.desk.drafts.as_dict() == {
        "offered": 1, "taken": 1, "refused": 0, "skipped": 0, "faults": 0,
    }  # fmt: skip


def test_a_call_that_may_not_run_ahead_is_a_draft_all_the_same(door, agent):
    door.probe = lambda exchange: names(ToolCall("delete_everything", {}))
    door.asks_for("A")
    found = agent()
    found.turn()
    assert door.offered[0].body["drafts"] == ['{"name": "delete_everything", "arguments": {}}']
    (bet,) = [bet for bet in found.proxy.settled() if bet["tool"] == "delete_everything"]
    assert bet["outcome"] == "vetoed"


def test_a_probe_that_came_to_no_call_is_a_draft_as_far_as_it_came(door, agent):
    half = [event({}, choices=[{"index": 0, "delta": {"content": 'get", "arguments": {"ke'}, "logprobs": None}]), DONE]
    door.probe = lambda exchange: half
    door.asks_for("A")
    agent().turn()
    assert door.offered[0].body["drafts"] == ['{"name": "get", "arguments": {"ke']


def test_the_same_guess_is_offered_once(door, agent):
    asked = []

    def probe(exchange: Any) -> Any:
        asked.append(exchange)
        return names(key("A"))

    door.probe = probe
    offered, again = When(lambda: door.offered), When(lambda: len(asked) > 1)
    said = [say(THINKS), offered, say(THINKS), again, say(THINKS)]
    door.turn = lambda exchange: [*said, *call("get", {"key": "B"}), *calls_end()]
    agent().turn()
    assert len(asked) == 2
    assert len(door.offered) == 1


@pytest.mark.parametrize("drafts", [True, False])
def test_the_agents_bytes_are_the_same_with_drafts_and_without(door, agent, drafts):
    after = When(lambda: door.offered if drafts else any(map(is_probe, door.endpoint.exchanges)))
    door.asks_for("B", after=after, prompt_tokens=9, completion_tokens=20)
    found = agent(drafts=drafts)
    body = {"model": "m", "messages": [{"role": "user", "content": "x\u2028"}], "tools": found.schemas, "stream": True}
    raw = json.dumps(body, ensure_ascii=False).encode()
    with plain_client(found.runtime) as client:
        got = client.post(f"{found.runtime.base_url}/chat/completions", content=raw)
    (turn,) = door.turns
    assert (turn.raw, got.content) == (raw, b"".join(turn.sent))
    assert ("x-request-id" in turn.headers) is drafts
    assert bool(door.offered) is drafts


REFUSALS = {
    "an error": lambda exchange: Reply([b"{}"], status=500),
    "no such path": lambda exchange: Reply([b"{}"], status=404),
    "silence": lambda exchange: [Gate()],
    "rubbish": lambda exchange: Reply([b"\xff" * 100_000]),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_an_engine_that_refuses_drafts_costs_the_turn_nothing(door, agent, get, kind):
    """The turn does not even wait for the answer to the offer."""
    door.drafts = REFUSALS[kind]
    door.asks_for("A", after=When(lambda: door.offered))
    found = agent()
    assert found.turn() == ["A!"]
    assert get.runs == ["A"]
    counts = found.proxy.deps.desk.drafts.counts
    eventually(lambda: counts.refused + counts.faults + counts.taken == 1)
    faults = found.proxy.deps.desk.books.faults
    assert faults == ({"drafts": 1} if kind == "silence" else {})
    assert counts.taken == (kind == "rubbish")


def test_an_engine_that_refuses_is_left_alone_for_a_while(door, agent, monkeypatch):
    monkeypatch.setattr(draft_offers, "_LEFT_ALONE_S", 3600.0)
    door.drafts = REFUSALS["no such path"]
    found = agent()
    patient(found.proxy)
    counts = found.proxy.deps.desk.drafts.counts
    for turn in range(5):
        before = counts.offered + counts.skipped
        door.asks_for(f"no {turn}", after=When(lambda before=before: counts.offered + counts.skipped > before))
        found.turn()
        eventually(lambda: counts.refused == counts.offered)
    assert (counts.offered, counts.skipped) == (3, 2)
    assert len(door.offered) == 3


def test_a_fault_of_ours_is_counted_and_nothing_else(door, agent, get, monkeypatch):
    found = agent()
    asked = Gate()

    def broken(*_: Any) -> int:
        asked.open()
        raise RuntimeError("no")

    monkeypatch.setattr(found.proxy.deps.desk.drafts, "offer", broken)
    door.asks_for("A", after=asked)
    assert found.turn() == ["A!"]
    eventually(lambda: found.proxy.deps.desk.books.faults.get("drafts"))
    assert set(found.proxy.deps.desk.books.faults) == {"drafts"}


@pytest.mark.parametrize("own", ["header", "body"])
def test_an_id_that_the_agent_chose_is_left_alone_and_nothing_is_offered_under_it(door, agent, own):
    """Another tenant may have chosen the same."""
    probed = When(lambda: any(is_probe(one) and one.finished.is_open for one in door.endpoint.exchanges))
    door.asks_for("B", after=probed)
    found = agent()
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": found.schemas, "stream": True}
    headers = {"x-request-id": "mine"} if own == "header" else {}
    body |= {"request_id": "mine"} if own == "body" else {}
    with plain_client(found.runtime) as client:
        client.post(f"{found.runtime.base_url}/chat/completions", json=body, headers=headers)
    (turn,) = door.turns
    assert turn.headers.get("x-request-id") == headers.get("x-request-id")
    assert door.offered == []


@pytest.mark.parametrize(
    "settings", [{"engine": Engine.OPENAI}, {"drafts": False}, {"probe": False}, {"engine": Engine.SGLANG}]
)
def test_where_no_drafts_are_taken_nothing_is_added_to_the_request(door, agent, settings):
    door.asks_for("B", after=0.0)
    agent(**settings).turn()
    assert "x-request-id" not in door.turns[0].headers
    assert door.offered == []


def test_what_was_accepted_is_in_the_ledger(door, agent):
    details = {"accepted_prediction_tokens": 15, "rejected_prediction_tokens": 3}
    door.asks_for("B", prompt_tokens=9, completion_tokens=20, completion_tokens_details=details)
    found = agent()
    found.turn()
    found.proxy.claimed()
    (row,) = rows(found, "turns")
    assert (row["drafted_tokens"], row["accepted_tokens"], row["draft_saved_s"]) == (18, 15, None)


def test_a_corpus_for_all_is_asked_only_where_that_is_allowed_and_is_cleared(door, agent):
    door.asks_for("B")
    found = agent(engine=Engine.SGLANG, drafts_shared=True)
    found.turn()
    eventually(lambda: len(door.offered) == 2, "the corpus is removed when the turn is over")
    added, removed = door.offered
    assert (added.path, added.body["documents"]) == ("/add_external_corpus", [CALLS_A])
    assert (removed.path, removed.body) == ("/remove_external_corpus", {"corpus_id": added.body["corpus_id"]})
    assert "x-request-id" not in door.turns[0].headers


def test_two_turns_at_once_each_get_their_own_drafts(start, cleanup, way, door, get):
    """Two tenants ask the same question at the same time; the probe of each guesses something else."""
    if way == "embedded":
        pytest.skip("one process has one tenant")
    proxy = start(engine=Engine.AGENTSPEC, probe=True)
    guess = {"Bearer east": "E", "Bearer west": "W"}
    door.probe = lambda exchange: names(key(guess[exchange.headers["authorization"]]))
    both = When(lambda: len(door.offered) == 2)
    door.turn = lambda exchange: [say(THINKS), both, *call("get", {"key": "A"}), *calls_end()]
    agents = []
    for name in ("east", "west"):
        runtime = agentspec.connect(proxy.url, tools=[get.tool], api_key=name, wait_s=5.0)
        cleanup.callback(runtime.close)
        client = openai.OpenAI(base_url=runtime.base_url, api_key=name, max_retries=0, timeout=20)
        cleanup.callback(client.close)
        agents.append(Agent(client, [get.tool], question="the same"))
    threads = [threading.Thread(target=one.think) for one in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    turns = {one.headers["x-request-id"]: one.headers["authorization"] for one in door.turns}
    assert len(turns) == 2
    for offer in door.offered:
        whose = turns[offer.body["request_id"]]
        assert offer.headers["authorization"] == whose
        assert offer.body["drafts"] == [CALLS_A.replace('"A"', f'"{guess[whose]}"')]
