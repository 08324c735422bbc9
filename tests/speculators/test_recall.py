"""Guesses from memory: probabilities, asked again after each call, and never in the turn's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentspec.aside import Aside
from agentspec.calls import ToolCall
from agentspec.events import CallComplete, CallNamed, TextDelta
from agentspec.protocols import Prediction
from agentspec.recollection import Forecast, Past, Question, Recalled
from agentspec.speculators.chain import ChainSpeculator
from agentspec.speculators.recall import RecallSpeculator
from agentspec.trajectory import ASSISTANT, TOOL, Said
from tests.contract.scripted import eventually

pytestmark = pytest.mark.anyio

F, G = ToolCall("f", {"a": 1}), ToolCall("g", {"b": 2})
LIKELY = Forecast(0.2, (Recalled(F, 0.5, 0.8, 0.6), Recalled(G, 0.3, 0.2, 0.9), Recalled(F, 0.01), Recalled(G, 0.9)))


def likely_at_first(question: Question) -> Forecast:
    """Something is likely to be called, and nothing after it."""
    return Forecast(1.0) if question.emitted else LIKELY


class Memory:
    """One memory for all tenants; says what it is told to, and notes what it is asked."""

    def __init__(self, answer: Callable[[Question], Forecast] = likely_at_first) -> None:
        self.answer = answer
        self.asked: list[Question] = []
        self.tenants: list[str] = []
        self.threads: set[int] = set()

    def of(self, tenant: str) -> Memory:
        self.tenants.append(tenant)
        self.threads.add(threading.get_ident())
        return self

    def forecast(self, question: Question) -> Forecast:
        self.asked.append(question)
        return self.answer(question)

    def learn(self, past: Past) -> None:
        raise NotImplementedError

    def learnt(self, tenant: str, past: Past) -> None:
        raise NotImplementedError


def begun(memory: Any, turn: Any, aside: Aside | None = None) -> tuple[asyncio.Task[None], list[Prediction]]:
    offers: list[Prediction] = []
    speculator = RecallSpeculator(memory, aside or Aside("test"))
    return asyncio.create_task(speculator.speculate(turn, offers.append)), offers


async def until(condition: Callable[[], Any]) -> None:
    await asyncio.to_thread(eventually, condition)


def makes(turn: Any, call: ToolCall) -> None:
    index = len(turn.calls)
    turn.take(CallNamed(index, call.name, call.id))
    turn.take(CallComplete(index, call.name, call))


async def test_the_likeliest_are_offered_with_the_probability_that_they_come(make_turn: Any) -> None:
    memory = Memory()
    turn = make_turn()
    turn.offered = turn.request.tools
    task, offers = begun(memory, turn)
    await until(lambda: len(offers) == 2)
    assert [(one.call, one.predictor, one.calibrated) for one in offers] == [(F, "recall", True), (G, "recall", True)]
    assert [one.confidence for one in offers] == pytest.approx([0.4, 0.24])
    for one in offers:
        one.check()
    assert [(one.predictor, one.probability, one.known) for one in turn.quiet] == [("recall", 0.2, 0)]
    await until(lambda: len(memory.asked) == 2)
    question, further = memory.asked
    assert further.emitted == (F,)
    assert (question.trajectory, question.scope, question.history) == (turn.trajectory, turn.scope, turn.history)
    assert (question.tools, question.emitted, set(memory.tenants)) == (turn.request.tools, (), {"n"})
    assert threading.get_ident() not in memory.threads
    turn.end()
    await task


async def test_it_is_asked_again_when_a_call_was_made_and_not_after_the_end(make_turn: Any) -> None:
    memory = Memory(lambda question: Forecast(0.0, (Recalled(G if question.emitted else F, 0.25),)))
    turn = make_turn()
    task, offers = begun(memory, turn)
    await until(lambda: offers)
    turn.take(TextDelta("I think"))
    makes(turn, F)
    await until(lambda: len(offers) == 2)
    assert [question.emitted for question in memory.asked] == [(), (F,)]
    assert [one.call for one in offers] == [F, G]
    turn.end()
    await task
    assert len(memory.asked) == 2


def row_of(*calls: ToolCall) -> Callable[[Question], Forecast]:
    """A memory that knows these to be called in one answer, one after the other."""

    def answer(question: Question) -> Forecast:
        nth = len(question.emitted)
        return Forecast(0.1, (Recalled(calls[nth], 0.8),)) if nth < len(calls) else Forecast(1.0)

    return answer


async def test_what_may_follow_a_guess_in_the_same_answer_is_offered_with_all_that_it_rests_on(make_turn: Any) -> None:
    memory, turn = Memory(row_of(F, G)), make_turn()
    task, offers = begun(memory, turn)
    await until(lambda: len(memory.asked) == 3)
    assert [question.emitted for question in memory.asked] == [(), (F,), (F, G)]
    first, second = offers
    assert (first.call, first.rests_on, first.follows, first.predictor) == (F, 1.0, (), "recall")
    assert (second.call, second.follows, second.predictor, second.family) == (G, (F,), "recall_in_step", "recall")
    assert (second.rests_on, second.confidence) == pytest.approx((0.72, 0.72))
    turn.end()
    await task


async def test_an_answer_that_may_make_one_call_is_not_asked_further_about(make_turn: Any) -> None:
    memory, turn = Memory(row_of(F, G)), make_turn()
    turn.request = replace(turn.request, one_call=True)
    task, offers = begun(memory, turn)
    await until(lambda: offers)
    makes(turn, F)
    await task
    assert [question.emitted for question in memory.asked] == [()]
    assert [one.call for one in offers] == [F]


async def test_no_more_is_assumed_than_is_likely_together(make_turn: Any) -> None:
    unsure = Forecast(0.0, (Recalled(F, 0.5),)), Forecast(0.0, (Recalled(G, 0.5),))
    memory, turn = Memory(lambda question: unsure[len(question.emitted)]), make_turn()
    task, offers = begun(memory, turn)
    await until(lambda: len(offers) == 2)
    turn.end()
    await task
    assert [question.emitted for question in memory.asked] == [(), (F,)]
    assert offers[1].rests_on == 0.5


async def test_an_answer_to_an_old_question_is_not_offered(make_turn: Any) -> None:
    first = threading.Event()

    def answer(question: Question) -> Forecast:
        if not question.emitted:
            first.wait(5.0)
        return Forecast(0.0, (Recalled(G if question.emitted else F, 1.0),))

    memory, turn = Memory(answer), make_turn()
    task, offers = begun(memory, turn)
    await until(lambda: memory.asked)
    makes(turn, F)
    first.set()
    await until(lambda: offers)
    assert [one.call for one in offers] == [G]
    turn.end()
    await task


async def test_what_waits_for_memory_can_be_cancelled_and_is_then_not_asked(make_turn: Any) -> None:
    may, aside = threading.Event(), Aside("test")
    memory = Memory(lambda question: Forecast(float(not may.wait(5.0))))
    tasks = [begun(memory, make_turn(), aside)[0] for _ in range(5)]
    await until(lambda: memory.asked)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)
    may.set()
    done = aside.do(lambda: None)
    assert done is not None
    await asyncio.wrap_future(done)
    assert len(memory.asked) == 1


async def test_too_many_questions_are_left_out(make_turn: Any) -> None:
    may, aside = threading.Event(), Aside("test", most_waiting=2)
    memory = Memory(lambda question: Forecast(float(not may.wait(5.0))))
    turns = [make_turn() for _ in range(8)]
    tasks = [begun(memory, turn, aside)[0] for turn in turns]
    await until(lambda: aside.refused >= 5)
    may.set()
    for turn in turns:
        turn.end()
    await asyncio.gather(*tasks)
    assert len(memory.asked) + aside.refused == 8


async def test_what_memory_raises_is_raised(make_turn: Any) -> None:
    task, offers = begun(Memory(lambda question: 1 / 0), make_turn())  # type: ignore[arg-type,return-value]
    with pytest.raises(ZeroDivisionError):
        await task
    assert offers == []


async def test_rubbish_is_refused_where_it_is_offered(make_turn: Any) -> None:
    turn = make_turn()
    task, offers = begun(Memory(lambda question: Forecast(0.0, (Recalled(F, 1.5), Recalled(F, float("nan"))))), turn)
    await until(lambda: len(offers) == 2)
    for one in offers:
        with pytest.raises(ValueError, match="probability"):
            one.check()
    turn.end()
    await task


# What the next turn calls


def answered(call: ToolCall, result: str | None) -> list[Said]:
    named = replace(call, id="assumed 0")
    told = [Said(TOOL, b"", answers=("assumed 0",), results=(result,))] if result is not None else []
    return [Said(ASSISTANT, b"", (named,), frozenset({"assumed 0"})), *told]


@pytest.mark.parametrize(("result", "predictor"), [("{}", "chain"), (None, "chain_blind")])
async def test_memory_is_asked_what_follows_messages_that_nobody_has_said(
    make_turn: Any, result: str | None, predictor: str
) -> None:
    memory, turn = Memory(), make_turn()
    messages = answered(F, result)
    found = await ChainSpeculator(memory, Aside("test")).after(turn, messages)  # type: ignore[arg-type]
    assert [(one.call, one.predictor, one.family) for one in found] == [
        (F, predictor, "recall"),
        (G, predictor, "recall"),
    ]
    (question,) = memory.asked
    assert (question.ahead, question.emitted, question.history) == (messages, (), turn.history)
    assert threading.get_ident() not in memory.threads


async def test_nothing_is_foreseen_while_too_many_questions_wait(make_turn: Any) -> None:
    may, aside = threading.Event(), Aside("test", most_waiting=1)
    memory = Memory(lambda question: Forecast(float(not may.wait(5.0))))
    tasks = [
        asyncio.create_task(ChainSpeculator(memory, aside).after(make_turn(), answered(F, None))) for _ in range(8)
    ]  # type: ignore[arg-type]
    await until(lambda: aside.refused >= 5)
    may.set()
    assert [list(found) for found in await asyncio.gather(*tasks)] == [[]] * 8
    assert len(memory.asked) + aside.refused == 8
