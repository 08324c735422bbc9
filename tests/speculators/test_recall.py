"""Guesses from memory: probabilities, asked again after each call, and never in the turn's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentspec.aside import Aside
from agentspec.calls import ToolCall
from agentspec.events import CallComplete, CallNamed, TextDelta
from agentspec.protocols import Prediction
from agentspec.recollection import Forecast, Past, Question, Recalled
from agentspec.speculators.recall import RecallSpeculator
from tests.contract.scripted import eventually

pytestmark = pytest.mark.anyio

F, G = ToolCall("f", {"a": 1}), ToolCall("g", {"b": 2})
LIKELY = Forecast(0.2, (Recalled(F, 0.5, 0.8, 0.6), Recalled(G, 0.3, 0.2, 0.9), Recalled(F, 0.01), Recalled(G, 0.9)))


class Memory:
    """One memory for all tenants; says what it is told to, and notes what it is asked."""

    def __init__(self, answer: Callable[[Question], Forecast] = lambda question: LIKELY) -> None:
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
    (question,) = memory.asked
    assert (question.trajectory, question.scope, question.history) == (turn.trajectory, turn.scope, turn.history)
    assert (question.tools, question.emitted, memory.tenants) == (turn.request.tools, (), ["n"])
    assert threading.get_ident() not in memory.threads
    turn.end()
    await task


async def test_it_is_asked_again_when_a_call_was_made_and_not_after_the_end(make_turn: Any) -> None:
    memory = Memory(lambda question: Forecast(0.0, (Recalled(G if question.emitted else F, 1.0),)))
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
