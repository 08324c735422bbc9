"""Probes of a hosted endpoint cost money: the cap is counted and kept."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentspec.calls import ToolCall
from agentspec.config import Engine, Settings, load
from agentspec.events import TextDelta
from agentspec.protocols import Prediction
from agentspec.speculators.forks import Continuation, ForcedCall, forks_for
from agentspec.speculators.probe import ProbeSpeculator

pytestmark = pytest.mark.anyio

SOON = 2.0


def hosted(cap: float, tokens: int = 100) -> Settings:
    prices = {"price_input_usd_per_mtok": 10.0, "price_output_usd_per_mtok": 100.0}
    return load({"engine": "openai", "probe_money_cap_usd": cap, "probe_tokens": tokens, **prices})


def calls(*named: tuple[str, str]) -> dict[str, Any]:
    found = [{"index": i, "id": f"c{i}", "function": {"name": n, "arguments": a}} for i, (n, a) in enumerate(named)]
    return {"choices": [{"index": 0, "delta": {"tool_calls": found}}]}


async def probe_once(speculator: ProbeSpeculator, turn: Any, log: Any) -> list[Prediction]:
    offers: list[Prediction] = []
    closed = len(log.closed)
    task = asyncio.create_task(speculator.speculate(turn, offers.append))
    turn.take(TextDelta("text"))
    await log.until(closed + 1, task)
    turn.end()
    await asyncio.wait_for(task, SOON)
    return offers


@pytest.fixture
def hosted_engine(engine: Any) -> Any:
    async def answer(asked: Any) -> None:
        await asked.start()
        await asked.say(
            {"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 20}},
            calls(("get_order", '{"order_id": "A1"}')),
        )

    engine.script = answer
    return engine


async def test_a_forced_call_is_offered(hosted_engine: Any, upstream: Any, log: Any, make_turn: Any) -> None:
    offers = await probe_once(ProbeSpeculator({Engine.VLLM: ForcedCall(hosted(1.0))}, log, 10), make_turn(), log)
    assert [found.call for found in offers] == [ToolCall("get_order", {"order_id": "A1"})]
    assert 0 < offers[0].confidence < 1


async def test_the_request_forces_a_call_and_keeps_prefix_and_tools(make_turn: Any) -> None:
    thinking = {"reasoning_effort": "high", "reasoning": {"x": 1}, "thinking": {"x": 1}, "max_completion_tokens": 9}
    turn = make_turn(tool_choice="auto", **thinking)
    asked, sent = json.loads(ForcedCall(hosted(1.0)).request(turn)[1]), json.loads(turn.body)
    assert (asked["messages"], asked["tools"]) == (sent["messages"], sent["tools"])
    assert (asked["tool_choice"], asked["max_tokens"], asked["stream"]) == ("required", 100, True)
    assert asked["stream_options"] == {"include_usage": True}
    assert not set(thinking) & set(asked)


async def test_a_tool_that_the_agent_forces_stays_forced(make_turn: Any) -> None:
    choice = {"type": "function", "function": {"name": "get_order"}}
    assert json.loads(ForcedCall(hosted(1.0)).request(make_turn(tool_choice=choice))[1])["tool_choice"] == choice


async def test_probing_stops_at_the_cap(hosted_engine: Any, upstream: Any, log: Any, make_turn: Any) -> None:
    fork = ForcedCall(hosted(cap=0.03))
    speculator = ProbeSpeculator({Engine.VLLM: fork}, log, 10)
    for _ in range(8):
        await probe_once(speculator, make_turn(), log)
    assert fork.spent_usd == pytest.approx(len(hosted_engine.probes) * (1000 * 10 + 20 * 100) / 1e6)
    assert len(hosted_engine.probes) == 3  # 0.012 each: 0.036 is the first sum at or above 0.03


async def test_a_new_day_has_new_money(
    monkeypatch: pytest.MonkeyPatch, hosted_engine: Any, upstream: Any, log: Any, make_turn: Any
) -> None:
    today = [86_400.0 * 20_000]
    monkeypatch.setattr("agentspec.speculators.forks.time.time", lambda: today[0])
    speculator = ProbeSpeculator({Engine.VLLM: ForcedCall(hosted(cap=0.01))}, log, 10)
    for _ in range(3):
        await probe_once(speculator, make_turn(), log)
    assert len(hosted_engine.probes) == 1
    today[0] += 86_400
    await probe_once(speculator, make_turn(), log)
    assert len(hosted_engine.probes) == 2


def test_no_cap_is_no_probe() -> None:
    assert not hosted(0.0).probes_allowed(Engine.OPENAI)
    assert not ForcedCall(hosted(0.0)).affordable()


async def test_an_answer_that_told_no_usage_counts_as_the_longest(
    engine: Any, upstream: Any, log: Any, make_turn: Any
) -> None:
    async def answer(asked: Any) -> None:
        await asked.start()
        await asked.say(calls(("get_order", "{}")))

    engine.script = answer
    fork = ForcedCall(hosted(1.0))
    await probe_once(ProbeSpeculator({Engine.VLLM: fork}, log, 10), make_turn(), log)
    assert fork.spent_usd >= 100 * 100 / 1e6


async def test_a_probe_that_is_cut_off_is_paid_for(engine: Any, upstream: Any, log: Any, make_turn: Any) -> None:
    async def hang(asked: Any) -> None:
        await asked.gone.wait()

    engine.script = hang
    fork, turn = ForcedCall(hosted(1.0)), make_turn()
    task = asyncio.create_task(ProbeSpeculator({Engine.VLLM: fork}, log, 10).speculate(turn, lambda _: None))
    turn.take(TextDelta("text"))
    await asyncio.wait_for(engine.came.wait(), SOON)
    task.cancel()
    await asyncio.wait({task}, timeout=SOON)
    assert fork.spent_usd > 0, "the endpoint bills what it read and began to write"


async def test_many_turns_at_once_do_not_pass_the_cap_together(
    hosted_engine: Any, upstream: Any, log: Any, make_turn: Any
) -> None:
    speculator = ProbeSpeculator({Engine.VLLM: ForcedCall(hosted(cap=0.012))}, log, 10)
    turns = [make_turn() for _ in range(12)]
    tasks = [asyncio.create_task(speculator.speculate(turn, lambda _: None)) for turn in turns]
    for turn in turns:
        turn.take(TextDelta("text"))
    await log.until(1, tasks[-1])
    for turn in turns:
        turn.end()
    await asyncio.wait_for(asyncio.gather(*tasks), SOON)
    assert len(hosted_engine.probes) <= 2


@pytest.mark.parametrize("arguments", ['{"a": {}', '{"a": "}', "null", "[]", "}"])
async def test_arguments_that_are_no_whole_object_are_not_offered(
    engine: Any, upstream: Any, log: Any, make_turn: Any, arguments: str
) -> None:
    async def answer(asked: Any) -> None:
        await asked.start()
        await asked.say(calls(("get_order", arguments)))

    engine.script = answer
    assert await probe_once(ProbeSpeculator({Engine.VLLM: ForcedCall(hosted(1.0))}, log, 10), make_turn(), log) == []


async def test_several_forced_calls_are_all_offered(engine: Any, upstream: Any, log: Any, make_turn: Any) -> None:
    async def answer(asked: Any) -> None:
        await asked.start()
        await asked.say(calls(("get_order", '{"a":1}'), ("get_order", '{"a":2}'), ("get_user", "{}")))

    engine.script = answer
    offers = await probe_once(ProbeSpeculator({Engine.VLLM: ForcedCall(hosted(1.0))}, log, 10), make_turn(), log)
    assert [found.call.arguments for found in offers] == [{"a": 1}, {"a": 2}, {}]


def test_the_engine_decides_the_fork() -> None:
    priced = {"price_input_usd_per_mtok": 1.0, "price_output_usd_per_mtok": 1.0, "probe_money_cap_usd": 1.0}
    assert isinstance(forks_for(load({"engine": "openai", **priced}))[Engine.OPENAI], ForcedCall)
    for kind in (Engine.VLLM, Engine.SGLANG, Engine.AGENTSPEC):
        assert isinstance(forks_for(load({"engine": kind}))[kind], Continuation)
