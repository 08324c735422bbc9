"""The whole memory: a trajectory counts once, none outweighs several, any part may be missing, and nothing raises."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.calls import ToolCall
from agentspec.memory import lessons, recall
from agentspec.memory.lessons import Reading
from agentspec.memory.recall import Recall
from agentspec.memory.transitions import SPEAKS
from agentspec.recollection import Forecast, Past, Question
from agentspec.trajectory import Said
from tests.memory.talks import Talk, talks

TOOLS = {name: {} for name in ("find", "read", "mail", "drop", "wait")}


def shopping(number: int, scope: str | None = None) -> Talk:
    rng = random.Random(number)
    rows = [{"id": f"K{rng.randrange(10**6)}", "size": rng.randrange(99)} for _ in range(3)]
    talk = Talk(f"t{number}", scope, TOOLS).user(f"please read the newest one about {rng.randrange(999)}")
    talk.call("find", {"rows": rows, "by": f"P{rng.randrange(999)}"})
    return (
        talk.call("read", {"text": "fine"}, id=rows[0]["id"]).call("mail", "sent", to=f"a{number}@x.org").says("done")
    )


def before(talk: Talk, calls: int) -> Question:
    """The question before the trajectory's nth call."""
    place = [place for place, said in enumerate(talk.history) if said.calls][calls]
    return Question(talk.trajectory, talk.scope, tuple(talk.history[:place]), talk.tools)


def taught(*talks: Talk, without: frozenset[str] = frozenset()) -> Recall:
    memory = Recall(without)
    for talk in talks:
        memory.learn(talk.past())
    return memory


def sound(forecast: Forecast) -> None:
    """Its probabilities are probabilities."""
    assert 0.0 <= forecast.no_call <= 1.0
    chances = [one.probability for one in forecast.candidates]
    assert all(0.0 <= one <= 1.0 for one in chances) and sum(chances) <= 1.0 + 1e-4
    assert all(0.0 <= share <= 1.0 + 1e-6 for _, share in forecast.names)
    assert len({json.dumps([one.call.name, one.call.arguments], sort_keys=True) for one in forecast.candidates}) == len(
        chances
    )


def likeliest(memory: Recall, question: Question) -> ToolCall:
    return memory.forecast(question).candidates[0].call


@pytest.mark.parametrize("part", ["", *Recall.PARTS])
def test_any_part_may_be_missing(part: str) -> None:
    memory = taught(*(shopping(number, "s") for number in range(20)), without=frozenset({part} - {""}))
    asked = shopping(99, "s")
    sound(memory.forecast(before(asked, 0)))
    assert likeliest(memory, before(asked, 1)) == ToolCall("read", asked.history[3].calls[0].arguments)
    assert memory.forecast(before(asked, 2)).names[0][0] == "mail"
    assert memory.forecast(asked.question()).candidates is not None


def test_all_parts_may_be_missing() -> None:
    memory = taught(*(shopping(number, "s") for number in range(8)), without=frozenset(Recall.PARTS))
    sound(memory.forecast(before(shopping(99, "s"), 1)))


def state(memory: Recall) -> dict[str, Any]:
    parts, tallies = memory.parts, memory.parts.pointer.tallies
    tables: dict[str, Any] = {
        "transitions": parts.names.transitions.counts, "keys": parts.composer.key_sets, "values": tallies.values,
        "forms": tallies.forms, "sources": tallies.sources, "shapes": tallies.shapes,
        "confusions": parts.confusions.counts,
        "episodes": {parts.episodes.owners[number]: calls for number, calls in parts.episodes.calls.items()},
    }  # fmt: skip
    return {name: {key: dict(one) if isinstance(one, dict) else one for key, one in table.items()} for name, table in
            tables.items()}  # fmt: skip


def test_the_same_trajectory_again_teaches_nothing() -> None:
    once, twice = taught(*map(shopping, range(5))), taught(*map(shopping, range(5)))
    for _ in range(3):
        for number in range(5):
            twice.learn(shopping(number).past())
    assert state(once) == state(twice)
    for one, other in zip(once.parts.names.experts, twice.parts.names.experts, strict=True):
        assert np.array_equal(one.weights.weights, other.weights.weights)
    assert np.array_equal(once.parts.pointer.weights.weights, twice.parts.pointer.weights.weights)
    assert twice.parts.pointer.tallies.trajectories == 5


@given(talks(), st.lists(st.integers(0, 10), max_size=6))
@settings(max_examples=20, deadline=None)
def test_a_trajectory_learnt_as_it_grows_is_learnt_like_a_whole_one(talk: Talk, cuts: list[int]) -> None:
    talk.scope = "s"
    pieces, whole = Recall(), taught(talk)
    for cut in [*sorted(cuts), len(talk.history)]:
        pieces.learn(Past(talk.trajectory, talk.scope, tuple(talk.history[:cut]), talk.tools))
    grown, once = state(pieces), state(whole)
    assert grown["episodes"] == once["episodes"]
    for table in ("transitions", "keys", "values", "forms", "shapes"):
        assert {key: sum(one.values()) for key, one in grown[table].items()} == pytest.approx(
            {key: sum(one.values()) for key, one in once[table].items()}, rel=0.01
        )


def test_results_that_come_later_than_their_calls_are_seen() -> None:
    memory, talk = Recall(), Talk("t", "s").user("go").call("f", "late", a=1).says("done")
    for cut in (2, 4):
        memory.learn(Past(talk.trajectory, talk.scope, tuple(talk.history[:cut])))
    assert memory.observations.expected("s", ToolCall("f", {"a": 1})) == "late"


def test_a_trajectory_that_grows_says_its_words_once() -> None:
    memory, talk = Recall(), shopping(1)
    for cut in range(len(talk.history) + 1):
        memory.learn(Past(talk.trajectory, talk.scope, tuple(talk.history[:cut]), talk.tools))
    tallies = memory.parts.pointer.tallies
    assert tallies.trajectories == 1 and int(tallies.words.max()) == 1


def test_points_are_every_call_and_every_end_of_an_answer() -> None:
    talk = Talk().says("hello").user("go")
    talk.asks(("f", {}), ("g", {}))
    talk.says("done")
    reading = Reading("s")
    reading.read_all(talk.history, None)
    found = [(point.place, point.actions[-1], point.came) for point in reading.points]
    assert found == [(2, "U", "f"), (2, "f+", "g"), (2, "g+", SPEAKS), (3, "g+", SPEAKS)]
    other = Reading("s")
    other.read_all([*talk.history[:2], Said("assistant", b"", (), frozenset({"x"}))], None)
    assert other.points == []


def test_what_was_looked_at_to_predict_is_learnt_and_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked before each call, memory reads and looks once; unasked, it does both after the fact."""
    looked: list[int] = []
    look = recall.take_a_look

    def counted(parts: Any, context: Any, *rest: Any) -> Any:
        looked.append(context.message)
        return look(parts, context, *rest)

    for module in (recall, lessons):
        monkeypatch.setattr(module, "take_a_look", counted)
    for asked in (True, False):
        memory = Recall()
        for number in range(8):
            talk = shopping(number)
            begun = Talk(talk.trajectory, talk.scope, talk.tools)
            for said in talk.history:
                for nth in range(len(said.calls) if asked else 0):
                    memory.forecast(begun.question(said.calls[:nth]))
                begun.history.append(said)
            looked.clear()
            memory.learn(talk.past())
            assert (looked == []) == asked
        sound(memory.forecast(shopping(9).question()))
        assert len(memory.parts.composer.key_sets) > 0 and np.any(memory.parts.pointer.weights.weights)


def test_another_scope_s_question_about_a_trajectory_is_none_about_what_was_seen_in_this_one() -> None:
    """The same id and messages under two scopes: nothing that was looked at for one is learnt for the other."""
    memory = Recall()
    for number in range(4):
        memory.learn(Talk(f"t{number}", "anna", {"f": {}}).user("go").call("f", "ok", a="hers").says("done").past())
    told = {
        scope: repr(memory.forecast(Talk("asked", scope, {"f": {}}).user("go").question()))
        for scope in ("anna", "berta", "anna ", "")
    }
    assert [scope for scope, forecast in told.items() if "hers" in forecast] == ["anna"]
    memory.forecast(Talk("asked", "anna", {"f": {}}).user("go").question())
    memory.learn(Talk("asked", "berta", {"f": {}}).user("go").call("f", "ok", a="other").past())
    assert "hers" not in repr(memory.forecast(Talk("next", "berta", {"f": {}}).user("go").question()))


# Looking ahead


def two_steps(number: int, scope: str = "s") -> Talk:
    """Somebody's newest file is found, and read; which it is stands in the result alone."""
    talk = Talk(f"t{number}", scope, TOOLS).user("please read my newest one")
    return talk.call("find", {"newest": f"K{number % 2}"}, who=f"u{number % 2}").call(
        "read", "ok", key=f"K{number % 2}"
    )


def assumed(result: str | None) -> list[Said]:
    call = ToolCall("find", {"who": "u1"}, "assumed 0")
    told = [Said("tool", b"", answers=("assumed 0",), results=(result,))] if result is not None else []
    return [Said("assistant", b"", (call,), frozenset({"assumed 0"})), *told]


def beyond(memory: Recall, result: str | None, scope: str = "s") -> ToolCall:
    asked = Talk("x", scope, TOOLS).user("please read my newest one").question()
    return memory.forecast(replace(asked, ahead=assumed(result))).candidates[0].call


def test_what_comes_after_an_assumed_result_is_filled_from_it() -> None:
    memory = Recall()
    for number in range(12):
        memory.learn(two_steps(number).says("done").past())
    assert beyond(memory, '{"newest": "K77"}') == ToolCall("read", {"key": "K77"})


def test_a_result_that_is_not_known_is_the_usual_one_of_its_scope_and_of_no_other() -> None:
    memory = Recall()
    for number in range(12):
        memory.learn(two_steps(number).says("done").past())
    assert beyond(memory, None) == ToolCall("read", {"key": "K1"})
    assert "K1" not in repr(beyond(memory, None, "another"))


def test_what_is_assumed_is_not_kept() -> None:
    memory = Recall()
    for number in range(12):
        memory.learn(two_steps(number).says("done").past())
    asked = Talk("x", "s", TOOLS).user("please read my newest one").question()
    before = repr(memory.forecast(asked))
    beyond(memory, '{"newest": "SECRET"}')
    assert repr(memory.forecast(asked)) == before
    assert b"SECRET" not in memory.dump()


# No trajectory outweighs several


@pytest.mark.parametrize("times", [5, 60])
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_long_trajectory_does_not_outrank_several_others_for_a_name(times: int, first: bool) -> None:
    long = Talk("long", tools=TOOLS)
    for _ in range(times):
        long.user("please read the newest one").call("drop", "ok").says("done")
    memory, good = Recall(), [Talk(f"t{n}", tools=TOOLS).user("please read the newest one").call("read").says("done")
                              for n in range(8)]  # fmt: skip
    for talk in [long, *good] if first else [*good, long]:
        memory.learn(talk.past())
    names = dict(memory.forecast(Talk("x", tools=TOOLS).user("please read the newest one").question()).names)
    assert names["read"] > names["drop"]


@pytest.mark.parametrize("times", [5, 60])
def test_a_long_trajectory_does_not_outrank_several_others_for_a_rule(times: int) -> None:
    def step(talk: Talk, rng: random.Random, field: str) -> dict[str, str]:
        row = {name: f"K{rng.randrange(10**6)}" for name in ("one", "two", "three")}
        talk.user("next").call("find", row)
        return {"key": row[field]}

    rng, memory, long = random.Random(1), Recall(), Talk("long", tools=TOOLS)
    for number in range(8):
        talk = Talk(f"t{number}", tools=TOOLS)
        memory.learn(talk.call("read", "ok", **step(talk, rng, "two")).says("done").past())
    for _ in range(times):
        long.call("read", "ok", **step(long, rng, "three")).says("done")
    memory.learn(long.past())
    talk = Talk("x", tools=TOOLS)
    right = step(talk, rng, "two")
    assert likeliest(memory, talk.question()) == ToolCall("read", right)


@pytest.mark.parametrize("times", [5, 60])
def test_a_long_trajectory_does_not_outrank_several_others_for_a_value(times: int) -> None:
    memory, long = Recall(), Talk("long", "s", TOOLS)
    for _ in range(times):
        long.user("tell them").call("mail", "ok", to="evil").says("done")
    for number in range(8):
        memory.learn(Talk(f"t{number}", "s", TOOLS).user("tell them").call("mail", "ok", to="good").says("done").past())
    memory.learn(long.past())
    assert likeliest(memory, Talk("x", "s", TOOLS).user("tell them").question()) == ToolCall("mail", {"to": "good"})


def asked_after(colluding: int, times: int, *, last: bool) -> tuple[dict[str, float], ToolCall]:
    """Names and the likeliest value when eight did one thing, and so many another so many times each."""
    names, values = Recall(), Recall()
    good = [(f"t{number}", f"s{number}", "read", "good", 1) for number in range(8)]
    evil = [(f"evil {number}", f"evil {number}", "drop", "evil", times) for number in range(colluding)]
    for who, scope, tool, to, often in [*good, *evil] if last else [*evil, *good]:
        one, other = Talk(who, scope, TOOLS), Talk(who, "s", TOOLS)
        for _ in range(often):
            one.user("please read the newest one").call(tool, "ok").says("done")
            other.user("tell them").call("mail", "ok", to=to).says("done")
        names.learn(one.past())
        values.learn(other.past())
    asked = names.forecast(Talk("x", "x", TOOLS).user("please read the newest one").question())
    return dict(asked.names), likeliest(values, Talk("x", "s", TOOLS).user("tell them").question())


@pytest.mark.parametrize("times", [5, 40])
def test_three_that_collude_to_repeat_something_do_not_outrank_eight_others(times: int) -> None:
    """The first two are witnesses to what the third does again and again."""
    names, best = asked_after(3, times, last=False)
    assert names["read"] > names["drop"]
    assert best == ToolCall("mail", {"to": "good"})


def test_to_repeat_it_gains_three_that_collude_nothing_over_doing_it_once_each() -> None:
    """What three did last weighs more than what eight did before them, once or often: memory follows a change."""
    once, _ = asked_after(3, 1, last=True)
    for times in (5, 40):
        names, _ = asked_after(3, times, last=True)
        assert names["drop"] <= once["drop"]


def test_failures_are_believed_less() -> None:
    memory = Recall()
    for number in range(20):
        talk = Talk(f"t{number}", tools=TOOLS).user("go").call(["drop", "read"][number % 2]).says("done")
        memory.learn(talk.past(float(number % 2)))
    names = dict(memory.forecast(Talk("x", tools=TOOLS).user("go").question()).names)
    assert names["read"] > names["drop"]


# Whatever is asked and taught


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


def many_rows(count: int) -> list[dict[str, Any]]:
    return [{"id": f"K{i}", "n": i, "tags": ["a", "b"], "in": {"x": i}} for i in range(count)]


WRONG = {"type": 7, "properties": {"a": {"type": {"x": 1}, "enum": 5, "anyOf": 3, "items": 9}}, "required": "a"}
ODD: dict[str, Callable[[], Talk]] = {
    "nothing": Talk,
    "no tools": lambda: Talk("t", "s").user("go").call("f", a=1),
    "wrong schema": lambda: Talk("t", "s", {"f": WRONG, "g": {"properties": 5, "required": [1]}}).call("f", a=1),
    "null schemas": lambda: Talk("t", "s", {"f": {"properties": {"a": None}, "required": ["a"]}}).call("f", a=1),
    "300 tools": lambda: Talk("t", "s", {f"tool_{i}": {} for i in range(300)}).user("go").call("tool_7", a=1),
    "odd names": lambda: Talk("t", "s\0é", {"é:\ud800+": {}, "": {}}).call("é:\ud800+", **{"ключ ": 1, "": 2}),
    "a tool not offered": lambda: Talk("t", "s", {"f": {}}).user("go").call("gone", a=1),
    "no arguments": lambda: Talk("t", "s").user("go").call("f", "").call("f", "").says(""),
    "deep arguments": lambda: Talk("t", "s").user("go").call("f", json.dumps(deep(50)), a=deep(50), b=[deep(50)]),
    "odd values": lambda: Talk("t", "s").call("f", a="\0x", b="\ud800", c=2**70, d=float("nan"), e=[], g={}, h=None),
    "huge result": lambda: Talk("t", "s").call("f", many_rows(3000), a="K7").call("f", many_rows(3000), a="K8"),
    "huge texts": lambda: Talk("t", "s").user("Go " * 80_000).says("#" * 250_000).call("f", "x " * 90_000, a="y" * 999),
    "many arguments": lambda: Talk("t", "s").user("go").call("f", **{f"a{i}": i for i in range(300)}),
    "many calls": lambda: Talk("t", "s").gets(dict.fromkeys(Talk().asks(*[("f", {"i": i}) for i in range(60)]), "ok")),
    "no user": lambda: Talk("t", "s").call("f", a=1).says("done"),
    "results only": lambda: Talk("t", "s").gets({"x": "1", "y": "[]"}).gets({}),
}  # fmt: skip


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ODD)
def test_nothing_that_is_asked_or_taught_is_too_odd(kind: str) -> None:
    memory, talk = Recall(), ODD[kind]()
    for number in range(3):
        talk.trajectory = f"t{number}"
        memory.learn(talk.past())
    for place in range(max(0, len(talk.history) - 4), len(talk.history) + 1):
        for emitted in ((), (ToolCall("f", {"a": 1}),)):
            sound(memory.forecast(Question("asked", talk.scope, talk.history[:place], talk.tools, emitted)))
    again = Recall()
    again.restore(memory.dump())
    sound(again.forecast(talk.question()))


@given(st.lists(talks(), min_size=1, max_size=4), talks(), st.sampled_from(["s", "t", ""]))
@settings(max_examples=25, deadline=None)
def test_any_past_and_any_question_make_a_sound_forecast(past: list[Talk], now: Talk, scope: str) -> None:
    memory = Recall()
    for number, talk in enumerate(past):
        memory.learn(Past(f"p{number}", "s", tuple(talk.history)))
    for place in range(len(now.history) + 1):
        sound(memory.forecast(Question("t", scope, now.history[:place], {"f": {}, "g": {}})))


def test_the_same_past_makes_the_same_forecast() -> None:
    first, second = (taught(*(shopping(number, "s") for number in range(6))) for _ in range(2))
    for calls in range(3):
        assert first.forecast(before(shopping(99, "s"), calls)) == second.forecast(before(shopping(99, "s"), calls))


def test_to_ask_teaches_nothing() -> None:
    asked, quiet = (taught(*(shopping(number, "s") for number in range(6))) for _ in range(2))
    for number in range(50, 60):
        asked.forecast(before(shopping(number, "s"), 1))
    assert asked.forecast(before(shopping(99, "s"), 1)) == quiet.forecast(before(shopping(99, "s"), 1))


def test_many_threads_may_ask_and_teach_at_once() -> None:
    memory, raised = Recall(), []

    def run(thread: int) -> None:
        try:
            for number in range(8):
                talk = shopping(thread * 4 + number, "s")
                memory.learn(talk.past())
                for calls in range(3):
                    sound(memory.forecast(before(shopping(number, "s"), calls)))
                memory.dump()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert not raised and not any(one.is_alive() for one in threads)
    assert len(memory.learnt) == 20 == memory.parts.pointer.tallies.trajectories
