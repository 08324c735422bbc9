"""The gate and its brakes before the real proxy: what is counted, what is held back, what is stopped and started."""

from __future__ import annotations

import itertools
import json
import logging
import sys
from typing import Any

import httpx
import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.gating.account import WRONG_IN_A_ROW
from agentspec.gating.calibration import Claimed
from agentspec.gating.conformal import UNLIKELY
from agentspec.protocols import Prediction
from agentspec.proxy.cli import main
from tests.contract.sandboxed import When
from tests.contract.scripted import Gate, asks_for, call, calls_end, eventually, say, speaks
from tests.contract.support import Guesses

SERVED = ("hit", "joined")
MODEL = "one-model"


class Get:
    """A read whose runs with keys that begin with `slow` last until they are let go."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.ran = {key: Gate() for key in "ABCDEF"}
        self.slow, self.go = Gate(), Gate()

        @speculate(effect="read", reads={"things"}, stable_for=30.0)
        def get(key: str) -> str:
            self.runs.append(key)
            if key.startswith("slow"):
                self.slow.open()
                self.go.wait()
            if key in self.ran:
                self.ran[key].open()
            return f"{key}!"

        self.tool = get


@pytest.fixture
def get():
    made = Get()
    yield made
    made.go.open()


class Predicts:
    """A predictor with one name for all it says: what it is worth is learnt."""

    def __init__(self, *guesses: Any, confidence: float = 1.0, name: str = "seer", calibrated: bool = False) -> None:
        self.name, self._guesses = name, guesses
        self.confidence, self._calibrated = confidence, calibrated

    async def speculate(self, turn: Any, offer: Any) -> None:
        for guess in self._guesses:
            for found in guess(turn) if callable(guess) else [guess]:
                offer(Prediction(found, self.name, self.confidence, 1.0, calibrated=self._calibrated))


def key(name: str) -> ToolCall:
    return ToolCall("get", {"key": name})


def judge_of(proxy: Any) -> Any:
    return proxy.deps.desk.judge


# Every prediction teaches, run or not


@pytest.mark.parametrize("right", [True, False])
def test_a_prediction_that_was_vetoed_is_right_or_wrong_as_well(endpoint, start, join, agent_of, get, right):
    proxy = start(Predicts(key("A"), confidence=0.05))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = lambda exchange, number: asks_for("get", {"key": "A" if right else "B"}, id=f"c{number}")
    calibration = judge_of(proxy).calibration
    for _ in range(5):
        agent.turn()
    eventually(lambda: len(calibration._told["seer"]) == 5)
    assert [came for _, came in calibration._told["seer"]] == [right] * 5
    assert len(calibration.bound("seer")._order) == sum(p >= UNLIKELY for p, _ in calibration._told["seer"])
    if right:
        assert calibration.probability(Claimed("seer", "get", 0.05)) > 0.3, "it is believed by and by"


def test_what_runs_ahead_is_counted_once_however_often_it_is_offered(endpoint, start, join, agent_of, get):
    proxy = start(Predicts(*[key("A")] * 6))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(asks_for("get", {"key": "A"}, after=get.ran["A"]))
    agent.turn()
    calibration = judge_of(proxy).calibration
    eventually(lambda: len(calibration._told["seer"]) == 6)
    assert list(calibration.bound("seer")._order) == [(pytest.approx(0.6), True)]
    assert proxy.claimed()[0]["outcome"] in SERVED
    assert len(proxy.bets()) == 1


def test_calls_that_were_made_already_are_no_predictions(endpoint, start, join, agent_of, get):
    class Late:
        name = "late"

        async def speculate(self, turn, offer):
            await turn.called(0)
            offer(Prediction(key("A"), self.name, 1.0, 1.0))
            offer(Prediction(key("B"), self.name, 1.0, 1.0))

    proxy = start(Late())
    agent = agent_of(join(proxy, get.tool), get.tool)
    first, second = (call("get", {"key": name}, f"c{nth}", nth) for nth, name in enumerate("AB"))
    endpoint.answers([say("x"), *first, get.ran["B"], *second, *calls_end()])
    agent.turn()
    calibration = judge_of(proxy).calibration
    eventually(lambda: "late" in calibration.predictors())
    assert list(calibration._told["late"]) == [(pytest.approx(0.6), True)]


def test_the_ledger_has_the_probability_and_the_reason(endpoint, start, join, agent_of, get):
    proxy = start(Predicts(key("A"), key("B"), confidence=0.5))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(asks_for("get", {"key": "A"}, after=get.ran["A"]))
    agent.turn()
    first = min(proxy.settled(2), key=lambda bet: bet["offered_s"])
    assert first["probability"] == pytest.approx(0.3)
    assert first["verdict"].startswith("p=0.30 > p*=0.")


# Brakes


def test_a_predictor_that_is_always_sure_and_always_wrong_is_soon_let_alone(endpoint, start, join, agent_of, get):
    numbers = itertools.count()
    proxy = start(Guesses(lambda turn: [key(f"no {next(numbers)}") for _ in range(3)]))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = lambda exchange, number: [
        say("x"),
        When(lambda: not any(bet.running for bet in list(proxy.deps.desk.books._open.values()))),
        *call("get", {"key": "A"}, f"c{number}"),
        *calls_end(),
    ]
    for _ in range(8):
        agent.turn()
    wrong = [run for run in get.runs if run.startswith("no")]
    assert len(wrong) <= WRONG_IN_A_ROW + 3, "the runs of one turn begin before any of them is known to be wrong"
    assert get.runs.count("A") == 8
    reasons = [bet["verdict"] for bet in proxy.settled(24)]
    assert any("of this trajectory were discarded" in reason for reason in reasons)
    assert judge_of(proxy).brakes.refused["trajectory"] > 0
    other = agent_of(agent.client and join(proxy, get.tool), get.tool)
    other.turn()
    eventually(lambda: len([run for run in get.runs if run.startswith("no")]) > len(wrong), "another trajectory's runs")


def test_what_cost_more_than_it_saved_is_off_and_the_log_says_so_once(
    endpoint, start, join, agent_of, get, caplog, monkeypatch
):
    monkeypatch.setattr("agentspec.gating.account.WRONG_IN_A_ROW", 100)
    monkeypatch.setattr("agentspec.gating.account.AT_LEAST_S", 1e6)
    proxy = start(Predicts(lambda turn: [key(f"no {len(turn.history)}")], confidence=1.0), max_discarded_share=1.0)
    brakes = judge_of(proxy).brakes
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = lambda exchange, number: asks_for("get", {"key": "A"}, id=f"c{number}")
    monkeypatch.setattr(judge_of(proxy).calibration, "probability", lambda claimed: 0.95)
    with caplog.at_level(logging.WARNING, "agentspec.brakes"):
        for _ in range(12):
            agent.turn()
        eventually(lambda: brakes.counts()["off"] == ["seer/get"])
    assert len([run for run in get.runs if run.startswith("no")]) == 8
    assert [record.getMessage() for record in caplog.records] == ["seer of get cost more than it saved; off for 30 s"]
    status = httpx.get(f"{proxy.url}/agentspec/status", trust_env=False).json()
    assert status["gate"]["off"] == ["seer/get"]
    assert status["gate"]["refused"]["no gain"] >= 1
    assert 0.0 <= status["gate"]["calibration_error"]["seer"] <= 1.0


@pytest.mark.parametrize("setting", ["runs_at_once", "tool_runs_at_once", "tool_runs_per_minute"])
def test_no_more_runs_than_the_budget_says(endpoint, start, join, agent_of, get, setting):
    proxy = start(Guesses(key("slow 1"), key("slow 2"), key("slow 3")), **{setting: 1})
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers([say("x"), get.slow, *calls_end()])
    agent.think()
    assert get.runs == ["slow 1"]
    outcomes = [bet["outcome"] for bet in proxy.settled(3)]
    assert sorted(outcomes) == ["miss", "vetoed", "vetoed"]
    assert judge_of(proxy).brakes.refused == {"budget": 2}


def test_what_a_discarded_run_costs_may_be_said_of_a_tool(endpoint, start, join, agent_of, get):
    """Of a tool that waits for others a wrong run costs nothing, so that a guess of one in fifty is worth a run."""
    guess = Predicts(key("A"), confidence=0.02, calibrated=True)
    free = {"get": {"miss_cost_share": 0.0}}
    for budgets, runs in (({}, []), (free, ["A"])):
        get.runs.clear()
        proxy = start(guess, max_discarded_share=1.0, tool_budgets=budgets)
        agent = agent_of(join(proxy, get.tool), get.tool)
        until = get.ran["A"] if runs else 0.2
        endpoint.script = lambda exchange, number, until=until: [say("x"), until, *calls_end()]
        agent.think()
        assert get.runs == runs


def test_a_run_that_is_over_makes_room_for_the_next(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(lambda turn: [key("ABCDEF"[len(turn.history) // 2])]), runs_at_once=1)
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = lambda exchange, number: asks_for(
        "get", {"key": "ABCDEF"[number]}, after=get.ran["ABCDEF"[number]], id=f"c{number}"
    )
    for name in "ABC":
        assert agent.turn() == [f"{name}!"]
    assert [claim["outcome"] in SERVED for claim in proxy.claimed(3)] == [True] * 3


def test_a_brake_that_fails_costs_a_count_a_line_and_nothing_else(
    endpoint, start, join, agent_of, get, monkeypatch, caplog
):
    proxy = start(Guesses(key("A")))
    monkeypatch.setattr(judge_of(proxy).brakes, "settled", lambda bet: 1 / 0)
    agent = agent_of(join(proxy, get.tool), get.tool)
    turns = itertools.count(1)

    def script(exchange, number):
        runs = next(turns)
        begun = When(lambda: get.runs.count("A") >= runs)  # the call comes when its guess runs
        return asks_for("get", {"key": "A"}, after=begun, id=f"c{number}")

    endpoint.script = script
    for _ in range(3):
        assert agent.turn() == ["A!"]
    assert proxy.claimed(3)[0]["outcome"] in SERVED
    eventually(lambda: proxy.deps.desk.books.faults["brakes"] >= 3)
    assert len([one for one in caplog.records if "brakes failed" in one.getMessage()]) == 1


@pytest.mark.parametrize("part", ["guess", "run", "after_closing", "still_worth"])
def test_a_gate_that_fails_means_the_serial_path(endpoint, start, join, agent_of, get, monkeypatch, part):
    proxy = start(Guesses(key("A"), key("B")))
    monkeypatch.setattr(type(judge_of(proxy)), part, lambda *_, **__: 1 / 0)
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(asks_for("get", {"key": "C"}))
    assert agent.turn() == ["C!"]
    assert proxy.claimed()[0]["outcome"] == "miss"


# Redirect, and starting at once


def test_a_wrong_run_is_stopped_as_soon_as_the_real_call_is_known(endpoint, start, join, agent_of, get):
    """The model never calls twice in one answer, so the run of another call is for nothing before the answer ends."""
    proxy = start(Guesses(key("slow guess")))
    agent = agent_of(join(proxy, get.tool), get.tool)
    stopped = When(lambda: not any(bet.running for bet in list(proxy.deps.desk.books._open.values())))
    endpoint.answers([say("x"), get.slow, *call("get", {"key": "A"}), stopped, *calls_end()])
    judge_of(proxy).averages.more_calls = lambda *_: Never()
    (made,) = agent.think()
    (bet,) = proxy.settled(1)
    assert (bet["outcome"], bet["reason"]) == ("miss", "the turn called get, and seldom calls twice")
    (trial,) = eventually(proxy._reader.trials)
    assert bet["settled_s"] < trial.took_s
    get.go.open()
    assert agent.act([made]) == ["A!"]


class Never:
    value = 0.0

    def add(self, value: float) -> None: ...


def test_a_run_goes_on_while_another_call_may_follow(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(key("B")))
    agent = agent_of(join(proxy, get.tool), get.tool)
    first, second = (call("get", {"key": name}, f"c{nth}", nth) for nth, name in enumerate("AB"))
    guessed = When(lambda: get.runs == ["B"])
    endpoint.answers([say("x"), guessed, *first, *second, *calls_end()])
    assert agent.turn() == ["A!", "B!"]
    (guess,) = eventually(lambda: [bet for bet in proxy.bets() if bet["predictor"] != "eager"])
    assert guess["outcome"] in SERVED


def test_a_call_that_closed_starts_before_the_answer_ends(endpoint, start, join, agent_of, get):
    """Here the rest of the answer is known to take a second: the only call of the answer is started meanwhile."""
    proxy = start()
    agent = agent_of(join(proxy, get.tool), get.tool)
    runway = type(judge_of(proxy).averages.runway("x"))
    late = runway()
    for _ in range(10):
        late.claimed(3.0, 1.0, followed=False)
    judge_of(proxy).averages.runway = lambda model: late
    endpoint.answers([say("x"), *call("get", {"key": "A"}), get.ran["A"], *calls_end()])
    assert agent.turn() == ["A!"]
    assert get.runs == ["A"]
    assert proxy.claimed()[0]["outcome"] in SERVED
    assert [bet["predictor"] for bet in proxy.settled(1)] == ["eager"]


def test_where_the_answer_ends_at_once_nothing_is_started_for_it(endpoint, start, join, agent_of, get):
    proxy = start()
    agent = agent_of(join(proxy, get.tool), get.tool)
    quick = type(judge_of(proxy).averages.runway("x"))()
    for _ in range(10):
        quick.claimed(3.0, 0.002, followed=False)
    judge_of(proxy).averages.runway = lambda model: quick
    endpoint.answers(asks_for("get", {"key": "A"}))
    assert agent.turn() == ["A!"]
    assert proxy.claimed()[0]["outcome"] == "miss"
    assert proxy.bets() == []


def test_the_second_of_three_calls_overlaps_the_third(endpoint, start, join, agent_of, get):
    proxy = start()
    agent = agent_of(join(proxy, get.tool), get.tool)
    one, two, three = (call("get", {"key": name}, f"c{nth}", nth) for nth, name in enumerate("ABC"))
    answer = [say("x"), *one, *two, three[0], get.ran["A"], get.ran["B"], *three[1:], *calls_end()]
    endpoint.answers(answer)
    assert agent.turn() == ["A!", "B!", "C!"]
    assert sorted(get.runs) == ["A", "B", "C"]
    assert [claim["outcome"] in SERVED for claim in proxy.claimed(3)] == [True, True, False]


# The control group


def test_a_held_out_trajectory_is_recorded_and_learnt_from_and_nothing_runs(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(key("A")), holdout_share=1.0)
    agent = agent_of(join(proxy, get.tool), get.tool)
    first, second = (call("get", {"key": name}, f"c{nth}", nth) for nth, name in enumerate("AB"))
    endpoint.answers([say("x"), *first, 0.1, *second, *calls_end()])
    assert agent.turn() == ["A!", "B!"]
    assert get.runs == ["A", "B"]
    assert [claim["outcome"] for claim in proxy.claimed(2)] == ["miss", "miss"]
    assert proxy.bets() == []
    ((trial),) = proxy._reader.trials()
    assert (trial.held_out, trial.turns) == (True, 1)
    averages = judge_of(proxy).averages
    assert sum(mean.count for _, mean in averages._calls.items()) == 1
    assert averages.tool_latency("get", proxy_fingerprint(proxy)).count == 2


def proxy_fingerprint(proxy: Any) -> str:
    (link,) = proxy.deps.runtimes.all()
    return link.tools["get"].spec.fingerprint


def test_savings_are_told_with_and_without_a_control_group(endpoint, start, join, agent_of, get, monkeypatch, capsys):
    proxy = start(Guesses(key("A")))
    runtime = join(proxy, get.tool)
    salt = proxy.deps.salt

    def held_out(trajectory: str, given: bytes, _: float) -> bool:
        assert given == salt
        return "yes" in trajectory

    monkeypatch.setattr("agentspec.proxy.turn.held_out", held_out)
    for nth in range(3):
        for group in ("yes", "no"):
            agent = agent_of(runtime, get.tool, **{"x-agentspec-session": f"{group}-{nth}"})
            endpoint.script = lambda exchange, number: asks_for("get", {"key": "A"})
            agent.turn()
    proxy.claimed(6)
    said = command(monkeypatch, capsys, proxy, "savings", "--json")
    found = json.loads(said)
    assert (found["treated"], found["control"]) == (3, 3)
    assert found["low_s"] <= found["difference_s"] <= found["high_s"]
    assert found["measured_s"] == pytest.approx(-3 * found["difference_s"])
    told = command(monkeypatch, capsys, proxy, "savings")
    assert "treated    3 trajectories, 3 turns" in told
    assert "s a turn, treated less control (95%:" in told


def command(monkeypatch: Any, capsys: Any, proxy: Any, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["agentspec", *arguments, "--database", proxy.deps.settings.database])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return capsys.readouterr().out


def test_the_group_is_chosen_by_the_trajectory_and_the_deployments_secret(start):
    proxy = start()
    assert len(proxy.deps.salt) >= 16


# Hedges


def test_second_runs_are_few_and_then_the_tool_runs_plainly(endpoint, start, join, agent_of, monkeypatch):
    """A tool whose runs ahead all hang: each claim waits for its tail, the first ones have a second run beside it."""
    from agentspec.tools_sandbox import claim
    from agentspec.tools_sandbox.declare import declared
    from agentspec.tools_sandbox.tiers.thread import running_ahead

    monkeypatch.setattr(claim, "FIRST_RUN_PATIENCE_S", 0.02)
    let_go = Gate()
    started = [Gate() for _ in range(6)]
    real: list[str] = []

    @speculate(effect="read", reads={"things"}, stable_for=30.0)
    def get(key: str) -> str:
        if running_ahead():
            started[int(key)].open()
            let_go.wait()
        else:
            real.append(key)
        return f"{key}!"

    proxy = start(Guesses(lambda turn: [ToolCall("get", {"key": str(len(turn.history) // 2)})]))
    agent = agent_of(join(proxy, get), get)
    endpoint.script = lambda exchange, number: asks_for(
        "get", {"key": str(number)}, after=started[number], id=f"c{number}"
    )
    for nth in range(5):
        assert agent.turn() == [f"{nth}!"]
    assert real == ["0", "1", "2", "3", "4"], "each call has run once for the agent, beside its run or after it"
    assert declared(get).hedges.take() is False
    let_go.open()
    assert {claim_["outcome"] for claim_ in proxy.claimed(5)} == {"miss"}


def test_a_turn_that_only_speaks_is_no_observation_of_a_claim(endpoint, start, join, agent_of, get):
    proxy = start(Guesses(key("A")))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(speaks())
    agent.think()
    proxy.settled(1)
    assert all(not len(runway.claim_s) for _, runway in judge_of(proxy).averages._runway.items())
