"""The probe against a real socket: what it asks, when it asks again, when it stops, what it costs."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from typing import Any

import pytest

from agentspec.calls import ToolCall
from agentspec.config import Engine, load
from agentspec.events import CallNamed, ReasoningDelta, TextDelta
from agentspec.protocols import Prediction
from agentspec.speculators.forks import OPENING, Continuation, ForcedCall
from agentspec.speculators.probe import ProbeSpeculator
from agentspec.verifier.adapters.registry import adapter_of

pytestmark = pytest.mark.anyio

SOON = 2.0
ORDER = ToolCall("get_order", {"order_id": "A1"})


class Run:
    """A speculator at work on a turn; predictions are collected."""

    def __init__(self, speculator: ProbeSpeculator, turn: Any) -> None:
        self.offers: list[Prediction] = []
        self.offered = asyncio.Event()
        self.task = asyncio.create_task(speculator.speculate(turn, self._offer))

    def _offer(self, prediction: Prediction) -> None:
        self.offers.append(prediction)
        self.offered.set()

    async def first(self) -> Prediction:
        await asyncio.wait_for(self.offered.wait(), SOON)
        return self.offers[0]

    async def over(self) -> None:
        await asyncio.wait_for(self.task, SOON)


@pytest.fixture
def speculator(log: Any) -> ProbeSpeculator:
    return ProbeSpeculator({Engine.VLLM: Continuation(adapter_of(Engine.VLLM), 64)}, log, 10)


async def test_a_probe_offers_the_call_with_its_confidence(
    speculator: ProbeSpeculator, engine: Any, log: Any, make_turn: Any
) -> None:
    turn = make_turn()
    run = Run(speculator, turn)
    turn.take(TextDelta("I look"))
    found = await run.first()
    turn.end()
    await run.over()
    assert (found.call, found.predictor) == (ORDER, "probe")
    assert (found.name_confidence, found.argument_confidence) == pytest.approx((math.exp(-0.3), math.exp(-0.2)))
    assert found.tokens == 5
    assert found.cost_s > 0
    assert [(probe.outcome, probe.completion_tokens) for probe in log.closed] == [("predicted", 5)]
    assert log.closed[0].prompt_tokens > 0


@pytest.mark.parametrize("reasoned", ["", "The user wants A1. "])
@pytest.mark.parametrize("said", ["", "I look it up.  "])
@pytest.mark.parametrize("kind", [Engine.VLLM, Engine.SGLANG, Engine.AGENTSPEC])
async def test_a_continuation_repeats_the_request_and_forces_the_opening(
    make_turn: Any, kind: Engine, said: str, reasoned: str
) -> None:
    turn = make_turn(seed=7, top_p=0.5, chat_template_kwargs={"enable_thinking": True}, max_completion_tokens=9)
    turn.take(ReasoningDelta(reasoned))
    turn.take(TextDelta(said))
    asked = json.loads(Continuation(adapter_of(kind), 48).request(turn)[1])
    sent = json.loads(turn.body)
    *messages, last = asked["messages"]
    assert messages == sent["messages"]
    assert (last["role"], last["content"].endswith(OPENING)) == ("assistant", True)
    assert said.strip() in last["content"]
    assert (reasoned.strip() in last["content"]) and (("</think>" in last["content"]) == bool(reasoned))
    assert asked["tools"] == sent["tools"]
    assert [key for key in asked if key in sent][:3] == ["model", "messages", "tools"]
    assert (asked["stream"], asked["temperature"], asked["max_tokens"], asked["logprobs"]) == (True, 0, 48, True)
    assert (asked["add_generation_prompt"], asked["continue_final_message"]) == (False, True)
    assert asked["priority"] == (-10 if kind is Engine.SGLANG else 10)
    assert (asked["seed"], asked["chat_template_kwargs"]) == (7, {"enable_thinking": True})
    assert "max_completion_tokens" not in asked


STATEFUL = {
    "store": True,
    "conversation": "c",
    "previous_response_id": "r",
    "background": True,
    "metadata": {"a": "b"},
    "user": "u",
    "n": 3,
    "stream_options": {"include_usage": False},
    "request_id": "the-turn",
}


@pytest.mark.parametrize("name", STATEFUL)
async def test_a_probe_leaves_no_trace_at_the_endpoint(make_turn: Any, name: str) -> None:
    """`request_id` is vLLM's: two running requests of one id, and closing the probe would abort the turn."""
    turn = make_turn(**{name: STATEFUL[name]})
    for fork in (Continuation(adapter_of(Engine.VLLM), 64), ForcedCall(load({"engine": "openai"}))):
        asked = json.loads(fork.request(turn)[1])
        assert name not in asked or (name == "stream_options" and asked[name] == {"include_usage": True})


@pytest.mark.parametrize("name", ["x-request-id", "idempotency-key", "x-client-request-id"])
async def test_a_probe_does_not_borrow_the_identity_of_its_turn(
    speculator: ProbeSpeculator, engine: Any, make_turn: Any, name: str
) -> None:
    """vLLM takes X-Request-Id for the request's id; an idempotency key would replay or refuse."""
    turn = make_turn([(b"content-type", b"application/json"), (name.encode(), b"1"), (b"authorization", b"Bearer k")])
    run = Run(speculator, turn)
    turn.take(TextDelta("I look"))
    await run.first()
    turn.end()
    assert name not in engine.probes[0].headers
    assert engine.probes[0].headers["authorization"] == "Bearer k"


async def test_it_probes_again_as_the_text_grows_and_not_before(
    speculator: ProbeSpeculator, engine: Any, make_turn: Any
) -> None:
    async def another_each_time(asked: Any) -> None:
        await asked.start()
        await asked.tell('get_order", "arguments": ', f'{{"order_id": "{len(engine.probes)}"}}}}')

    engine.script = another_each_time
    turn = make_turn()
    run = Run(speculator, turn)
    for number, text in enumerate(["I", "234567890", "1", "x" * 200], 1):
        run.offered.clear()
        turn.take(TextDelta(text))
        if number == 2:
            continue
        await asyncio.wait_for(run.offered.wait(), SOON)
        assert len(engine.probes) == number - (number > 2)
    turn.end()
    await run.over()
    assert [probe.body["messages"][-1]["content"][: -len(OPENING)] for probe in engine.probes] == [
        "I\n",
        "I2345678901\n",
        "I2345678901" + "x" * 200 + "\n",
    ]


async def test_two_probes_that_agree_are_enough(speculator: ProbeSpeculator, engine: Any, make_turn: Any) -> None:
    turn = make_turn()
    run = Run(speculator, turn)
    for text in ("I", "x" * 50):
        run.offered.clear()
        turn.take(TextDelta(text))
        await asyncio.wait_for(run.offered.wait(), SOON)
    turn.take(TextDelta("x" * 500))
    await run.over()
    assert len(engine.probes) == 2


async def test_a_turn_that_says_nothing_is_not_probed(speculator: ProbeSpeculator, engine: Any, make_turn: Any) -> None:
    turn = make_turn()
    run = Run(speculator, turn)
    turn.end()
    await run.over()
    assert engine.probes == []


@pytest.mark.parametrize("choice", ["none"])
async def test_a_turn_that_may_not_call_is_not_probed(
    speculator: ProbeSpeculator, engine: Any, make_turn: Any, choice: str
) -> None:
    turn = make_turn(tool_choice=choice)
    run = Run(speculator, turn)
    turn.take(TextDelta("text"))
    await run.over()
    assert engine.probes == []


async def test_once_the_call_began_there_is_nothing_to_guess(
    speculator: ProbeSpeculator, engine: Any, make_turn: Any
) -> None:
    turn = make_turn()
    run = Run(speculator, turn)
    turn.take(TextDelta("text"))
    await run.first()
    turn.take(CallNamed(0, "get_order", "c"))
    await run.over()
    assert len(engine.probes) == 1


@pytest.mark.parametrize("phase", ["before the head", "after the head", "mid stream"])
async def test_a_probe_dies_with_its_turn(
    speculator: ProbeSpeculator, engine: Any, log: Any, make_turn: Any, phase: str
) -> None:
    async def hang(asked: Any) -> None:
        if phase != "before the head":
            await asked.start()
        if phase == "mid stream":
            await asked.tell("get")
        await asked.gone.wait()

    engine.script = hang
    turn = make_turn()
    run = Run(speculator, turn)
    turn.take(TextDelta("text"))
    await asyncio.wait_for(engine.came.wait(), SOON)
    run.task.cancel()
    await asyncio.wait_for(engine.probes[0].gone.wait(), SOON)
    assert run.offers == []
    assert [probe.outcome for probe in log.closed] == ["cut off"]


async def test_the_call_is_offered_as_soon_as_it_closed_though_the_engine_goes_on(
    speculator: ProbeSpeculator, engine: Any, make_turn: Any
) -> None:
    async def ramble(asked: Any) -> None:
        await asked.start()
        await asked.tell("get_order", '", "arguments": {"order_id": "A1"}}', "\n", "and")
        await asked.gone.wait()

    engine.script = ramble
    turn = make_turn()
    run = Run(speculator, turn)
    turn.take(TextDelta("text"))
    assert (await run.first()).call == ORDER
    await asyncio.wait_for(engine.probes[0].gone.wait(), SOON)
    turn.end()


@pytest.mark.parametrize("answer", ["no call", "cut short", "closed at once", "garbage", "broken off"])
async def test_an_answer_that_is_no_call_offers_nothing_and_raises_nothing(
    speculator: ProbeSpeculator, engine: Any, log: Any, make_turn: Any, answer: str
) -> None:
    async def poor(asked: Any) -> None:
        if answer != "closed at once":
            await asked.start()
        await asked.tell(*{"no call": ["sorry}", '"}'], "cut short": ["get_order", '", "argu']}.get(answer, []))
        if answer == "garbage":
            await asked.say({"choices": [5]}, None, {"choices": [{"delta": {"content": "}}"}}]})
        if answer == "broken off":
            asked.writer.transport.abort()

    engine.script = poor
    turn = make_turn()
    run = Run(speculator, turn)
    turn.take(TextDelta("text"))
    await log.until(1, run.task)
    turn.end()
    await run.over()
    assert run.offers == []
    assert [probe.outcome != "predicted" for probe in log.closed] == [True]


async def test_without_log_probabilities_the_call_is_offered_all_the_same(
    speculator: ProbeSpeculator, engine: Any, make_turn: Any
) -> None:
    async def silent(asked: Any) -> None:
        await asked.start()
        await asked.tell('get_order", "arguments": {"order_id": "A1"}}', logprob=None)

    engine.script = silent
    turn = make_turn()
    run = Run(speculator, turn)
    turn.take(TextDelta("text"))
    found = await run.first()
    turn.end()
    assert found.call == ORDER
    assert 0 < found.confidence < 1, "nobody told how sure the model was"


async def test_after_three_refusals_in_a_row_the_model_is_left_alone(
    speculator: ProbeSpeculator, engine: Any, log: Any, make_turn: Any
) -> None:
    async def refuse(asked: Any) -> None:
        await asked.start(400)

    engine.script = refuse
    for number in range(5):
        turn = make_turn()
        run = Run(speculator, turn)
        turn.take(TextDelta("text"))
        await log.until(number + 1, run.task)
        turn.end()
        await run.over()
    assert len(engine.probes) == 3
    assert {probe.outcome for probe in log.closed} == {"refused with 400"}
    other = make_turn(model="other")
    run = Run(speculator, other)
    other.take(TextDelta("text"))
    await log.until(4, run.task)
    assert len(engine.probes) == 4
    other.end()
    await run.over()


async def test_an_engine_that_is_away_costs_nothing_but_the_probe(
    speculator: ProbeSpeculator, engine: Any, log: Any, make_turn: Any, upstream: Any
) -> None:
    upstream._address = dataclasses.replace(upstream._address, port=1)
    turn = make_turn()
    run = Run(speculator, turn)
    turn.take(TextDelta("text"))
    await log.until(1, run.task)
    turn.end()
    await run.over()
    assert (run.offers, [probe.outcome for probe in log.closed]) == ([], ["upstream_unreachable"])
