"""Probes before the real proxy: one at a time, ending with the stream, none under load; guesses that wait for one."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import pytest

from agentspec.calls import ToolCall
from agentspec.config import Engine
from agentspec.gating.load import QUEUE_METRICS
from agentspec.gating.runway import Runway
from agentspec.gating.sketch import Sketch
from agentspec.proxy import engine_load
from agentspec.proxy.judge import Judge
from agentspec.proxy.waiting import Waiting
from tests.contract.sandboxed import When
from tests.contract.scripted import DONE, Gate, Reply, asks_for, call, calls_end, event, eventually, say, speaks
from tests.contract.support import Agent
from tests.contract.test_gate import SERVED, Get, Predicts, judge_of, key

THINKS = "Let me think about what to look at first. " * 4


@pytest.fixture
def get():
    made = Get()
    yield made
    made.go.open()


@pytest.fixture
def ask(endpoint, start, join, agent_of, get):
    """ask(turn, probe): a proxy whose turns and probes are answered with these steps; the proxy and an agent."""

    def made(turn: Any, probe: Any, *speculators: Any, **settings: Any) -> tuple[Any, Any]:
        proxy = start(*speculators, engine=Engine.AGENTSPEC, probe=True, **settings)
        endpoint.script = lambda exchange, number: probe() if is_probe(exchange) else turn()
        return proxy, agent_of(join(proxy, get.tool), get.tool)

    return made


@pytest.fixture
def verdicts(monkeypatch):
    """What the gate said of probes."""
    found: list[Any] = []
    probe = Judge.probe

    def noted(self: Judge, turn: Any) -> Any:
        found.append(probe(self, turn))
        return found[-1]

    monkeypatch.setattr(Judge, "probe", noted)
    return found


def is_probe(exchange: Any) -> bool:
    return bool(exchange.body.get("continue_final_message"))


def names(found: ToolCall) -> list[Any]:
    """A probe's answer: the rest of a call whose opening it was given."""
    rest = json.dumps({"name": found.name, "arguments": found.arguments}).removeprefix('{"name": "')
    logprobs = {"content": [{"token": rest, "logprob": -0.01}]}
    choice = {"index": 0, "delta": {"content": rest}, "logprobs": logprobs, "finish_reason": None}
    return [event({}, choices=[choice]), DONE]


def probes(endpoint: Any) -> list[Any]:
    return [exchange for exchange in endpoint.exchanges if is_probe(exchange)]


def patient(proxy: Any, runway_s: float = 60.0, probe_s: float = 0.2) -> None:
    """Turns are known to take long, and probes to be quick and good."""
    averages = judge_of(proxy).averages
    runway, sketch = Runway(), Sketch(prior=probe_s)
    for _ in range(50):
        runway.claimed(runway_s, 0.01, followed=False)
        sketch.add(probe_s)
    averages.runway = lambda model: runway
    averages.probe_time = lambda predictor, model: sketch


def test_what_a_probe_names_is_run_ahead(endpoint, ask, get):
    proxy, agent = ask(
        lambda: [say(THINKS), get.ran["A"], *call("get", {"key": "A"}), *calls_end()], lambda: names(key("A"))
    )
    assert agent.turn() == ["A!"]
    assert proxy.claimed()[0]["outcome"] in SERVED
    ((turn,),) = [proxy._reader.turns(one["trajectory"]) for one in proxy._reader.trajectories()]
    assert turn["probe_verdict"].startswith("p=0.48 > p*=")


@pytest.mark.parametrize("kind", ["never", "garbage", "nothing", "refused"])
def test_a_hostile_endpoint_for_probes_is_not_waited_for(endpoint, ask, get, kind):
    answers = {
        "never": lambda: [Gate()],
        "garbage": lambda: [random.Random(1).randbytes(20_000), b"data: {]\n\n" * 100, DONE],
        "nothing": lambda: [DONE],
        "refused": lambda: Reply([b"{}"], status=500),
    }
    asked = Gate()

    def probe() -> Any:
        asked.open()
        return answers[kind]()

    proxy, agent = ask(lambda: [say(THINKS), asked, *call("get", {"key": "A"}), *calls_end()], probe)
    assert agent.turn() == ["A!"]
    assert proxy.claimed()[0]["outcome"] == "miss"
    eventually(lambda: probes(endpoint)[0].cancelled.is_open or probes(endpoint)[0].finished.is_open)
    eventually(lambda: not judge_of(proxy).brakes._probed)
    assert proxy.deps.desk.books.faults == {}


def test_a_probe_that_names_a_hundred_calls_has_no_more_runs_than_a_turn_may(endpoint, start, join, agent_of, get):
    proxy = start(Predicts(*[key(f"no {nth}") for nth in range(100)], confidence=1.0, name="probe"))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = lambda exchange, number: asks_for("get", {"key": "A"})
    for _ in range(3):
        assert agent.turn() == ["A!"]
    assert len([run for run in get.runs if run.startswith("no")]) <= 16, "in one turn, and then it is let alone"


def test_without_runway_there_is_no_probe_and_the_ledger_says_why(endpoint, ask, get, verdicts):
    proxy, agent = ask(
        lambda: [say("x"), When(lambda: verdicts), *call("get", {"key": "A"}), *calls_end()], lambda: names(key("A"))
    )
    patient(proxy, runway_s=0.05, probe_s=2.0)
    assert agent.turn() == ["A!"]
    proxy.claimed()
    assert probes(endpoint) == []
    ((turn,),) = [proxy._reader.turns(one["trajectory"]) for one in proxy._reader.trajectories()]
    assert turn["probe_verdict"] == verdicts[0].reason == "no runway is left after the probe"


@pytest.mark.parametrize("setting", ["probes_at_once", "probes_per_minute", "probe_tokens_per_minute"])
def test_no_probes_where_none_are_allowed(endpoint, ask, get, verdicts, setting):
    turn = [say(THINKS), When(lambda: verdicts), *call("get", {"key": "A"}), *calls_end()]
    proxy, agent = ask(lambda: turn, lambda: names(key("A")), **{setting: 0})
    assert agent.turn() == ["A!"]
    assert probes(endpoint) == []
    assert judge_of(proxy).brakes.refused == {"budget": 1}


def test_a_trajectory_has_one_probe_at_a_time(endpoint, ask, get, verdicts):
    """Two branches of one conversation at the same time; the first one's probe never comes back."""
    probed = Gate()

    def probe() -> Any:
        probed.open()
        return [Gate()]

    turns = iter([
        [say(THINKS), probed, When(lambda: len(verdicts) > 1), *call("get", {"key": "A"}), *calls_end()],
        [say(THINKS), When(lambda: len(verdicts) > 1), *speaks()[1:]],
    ])  # fmt: skip
    proxy, agent = ask(lambda: next(turns), probe)
    brakes = judge_of(proxy).brakes
    first = threading.Thread(target=agent.turn)
    first.start()
    assert probed.wait()
    (trajectory,) = brakes._probed
    began, brakes.refuses_probe = brakes.refuses_probe, lambda turn: began(SameTrajectory(turn, trajectory))
    other = agent_like(agent)
    other.think()
    first.join()
    assert [verdict.reason for verdict in verdicts][1] == "a probe of this trajectory is under way"
    assert len(probes(endpoint)) == 1


class SameTrajectory:
    """A turn as if it were of another trajectory."""

    def __init__(self, turn: Any, trajectory: str) -> None:
        self._turn, self.trajectory = turn, trajectory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turn, name)


def agent_like(agent: Any) -> Any:
    return Agent(agent.client, list(agent.tools.values()))


# Load


@pytest.mark.parametrize("metric", QUEUE_METRICS)
def test_an_engine_that_keeps_requests_waiting_is_not_probed(
    endpoint, start, join, agent_of, get, verdicts, monkeypatch, metric
):
    monkeypatch.setattr(engine_load, "_EVERY_S", 0.02)
    depth = [9.0]

    def judged() -> When:
        before = len(verdicts)
        return When(lambda: len(verdicts) > before)

    page = (b"content-type", b"text/plain")

    def script(exchange: Any, number: int) -> Any:
        if exchange.path == "/metrics":
            return Reply([f'{metric}{{model_name="m"}} {depth[0]}\n'.encode()], headers=[page])
        return [say(THINKS), judged(), *call("get", {"key": "A"}), *calls_end()]

    endpoint.script = script
    proxy = start(engine=Engine.VLLM, probe=True, probes_per_minute=0)
    brakes = judge_of(proxy).brakes
    runtime = join(proxy, get.tool)
    agent_of(runtime, get.tool).turn()
    agent = agent_of(runtime, get.tool)
    eventually(lambda: [load.queued for _, load in brakes._loads.items()] == [9.0])
    assert agent.turn() == ["A!"]
    assert brakes.refused == {"budget": 1, "load": 1}
    assert verdicts[-1].reason == "9 requests wait at the endpoint"
    depth[0] = 0.0
    eventually(lambda: [load.queued for _, load in brakes._loads.items()] == [0.0])


@pytest.mark.parametrize("status", [200, 404, 500])
def test_an_engine_without_metrics_is_nothing_to_worry_about(
    endpoint, start, join, agent_of, get, verdicts, monkeypatch, status, caplog
):
    page = Reply([b"<html>"], status=status)
    turn = [say(THINKS), When(lambda: verdicts), *call("get", {"key": "A"}), *calls_end()]
    endpoint.script = lambda exchange, number: page if exchange.path == "/metrics" else turn
    monkeypatch.setattr(engine_load, "_EVERY_S", 0.02)
    proxy = start(engine=Engine.VLLM, probe=True, probes_per_minute=0)
    assert agent_of(join(proxy, get.tool), get.tool).turn() == ["A!"]
    eventually(lambda: [one for one in endpoint.exchanges if one.path == "/metrics"])
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


# Guesses that wait for a second opinion


def test_a_guess_waits_for_the_probe_and_is_dropped_where_that_says_otherwise(endpoint, ask, get, monkeypatch):
    """Waiting costs nothing here: turns take a minute, probes a fifth of a second."""
    probed = Gate()

    def probe() -> Any:
        return [probed, *names(key("A"))]

    guess = Predicts(key("B"), confidence=0.5)
    proxy, agent = ask(
        lambda: [say(THINKS), get.ran["A"], *call("get", {"key": "A"}), *calls_end()],
        probe,
        guess,
        miss_cost_share=0.15,
    )
    patient(proxy, probe_s=0.5)
    hold = Waiting.hold

    def held(self: Waiting, guess: Any, wait_s: float) -> None:
        hold(self, guess, wait_s)
        probed.open()

    monkeypatch.setattr(Waiting, "hold", held)
    assert agent.turn() == ["A!"]
    assert proxy.claimed()[0]["outcome"] in SERVED
    assert get.runs == ["A"]
    (other,) = [bet for bet in proxy.settled(2) if bet["predictor"] == "seer"]
    assert other["outcome"] == "vetoed"


def test_a_guess_that_has_waited_long_enough_runs(endpoint, ask, get):
    guess = Predicts(key("B"), confidence=0.5)
    proxy, agent = ask(
        lambda: [say(THINKS), get.ran["B"], *call("get", {"key": "B"}), *calls_end()], lambda: [Gate()], guess
    )
    patient(proxy, probe_s=0.1)
    assert agent.turn() == ["B!"]
    assert proxy.claimed()[0]["outcome"] in SERVED


def test_a_guess_that_still_waits_when_the_answer_is_over_is_on_the_books(endpoint, ask, get):
    guess = Predicts(key("B"), confidence=0.5)
    asked = Gate()

    def probe() -> Any:
        asked.open()
        return [Gate()]

    proxy, agent = ask(lambda: [say(THINKS), asked, *speaks()[1:]], probe, guess)
    patient(proxy, probe_s=30.0)
    agent.think()
    (bet,) = proxy.settled(1)
    assert (bet["outcome"], bet["reason"]) == ("vetoed", "it waited for a probe until the answer was over")
    assert get.runs == []
