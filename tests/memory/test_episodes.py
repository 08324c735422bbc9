"""Past trajectories of the same end user: found again, and never, in any form, by anybody else."""

from __future__ import annotations

import gc
import random
import secrets
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.calls import ToolCall
from agentspec.memory.context import Context
from agentspec.memory.episodes import Episodes, Votes, key_of
from agentspec.memory.recall import Recall
from agentspec.recollection import Forecast
from agentspec.trajectory import calls_in
from tests.memory.talks import Talk


def context(talk: Talk) -> Context:
    made = Context()
    made.sync(talk.history)
    return made


def learnt(*talks: Talk) -> Episodes:
    episodes = Episodes()
    for talk in talks:
        episodes.learn(talk.scope, talk.trajectory, context(talk))
    return episodes


def task(name: str, trajectory: str, scope: str = "s") -> Talk:
    talk = Talk(trajectory, scope).user(f"please prepare the {name} report for {name}corp")
    return (
        talk.call("find", topic=name, year=2024).call("write", title=f"{name} report").call("mail", to=f"{name}@x.org")
    )


def others(count: int, scope: str = "s") -> list[Talk]:
    return [task(f"kind{number}", f"o{number}", scope) for number in range(count)]


def voted(votes: Votes) -> list[ToolCall]:
    return [vote.call for vote in votes.of.values()]


def asked(name: str, scope: str = "s") -> Context:
    return context(Talk("now", scope).user(f"please prepare the {name} report for {name}corp"))


def test_a_recurring_task_is_recognised_by_the_users_words() -> None:
    votes = learnt(*others(8), task("alpha", "t")).votes("s", asked("alpha"))
    first = max(votes.of.values(), key=lambda vote: (vote.similar, vote.aligned))
    assert first.call == ToolCall("find", {"topic": "alpha", "year": 2024}) and first.aligned
    assert len(first.episodes) == 1 and 0.0 < first.similar <= 1.0


def test_what_followed_the_same_calls_is_known() -> None:
    talk = task("alpha", "t")
    votes = learnt(task("alpha", "t"), task("alpha", "u")).votes("s", context(Talk("now", "s").call(
        "find", topic="alpha", year=2024)))  # fmt: skip
    vote = votes.of[key_of(calls_in(talk.history)[1])]
    assert vote.followed == [2.0, 0.0, 0.0] and votes.totals == [2.0, 0.0, 0.0] and len(vote.episodes) == 2


def test_longer_agreement_is_told_apart() -> None:
    episodes = learnt(
        Talk("a", "s").call("f", n=1).call("g").call("h", n=1),
        Talk("b", "s").call("f", n=2).call("g").call("h", n=2),
    )
    votes = episodes.votes("s", context(Talk("now", "s").call("f", n=2).call("g")))
    assert votes.of[key_of(ToolCall("h", {"n": 1}))].followed == [1.0, 0.0, 0.0]
    assert votes.of[key_of(ToolCall("h", {"n": 2}))].followed == [1.0, 1.0, 0.0]


def test_what_was_forgotten_votes_no_more() -> None:
    episodes = learnt(*others(8), task("alpha", "t"))
    episodes.forget("s", "t")
    episodes.forget("s", "never seen")
    assert len(episodes) == 8
    assert "alpha" not in repr(voted(episodes.votes("s", asked("alpha"))))


def test_a_trajectory_that_grew_is_one_episode_and_hides_no_other() -> None:
    episodes = learnt(*others(8), task("beta", "b"))
    for _ in range(100):
        episodes.learn("s", "a", context(task("alpha", "a")))
    assert len(episodes) == 10
    for name in ("alpha", "beta", "kind3"):
        assert ToolCall("find", {"topic": name, "year": 2024}) in voted(episodes.votes("s", asked(name)))
    votes = episodes.votes("s", context(Talk("now", "s").call("find", topic="alpha", year=2024)))
    assert votes.totals[0] == 1.0


def test_calls_come_back_as_they_were_made() -> None:
    odd: dict[str, Any] = {"a": "x\ud800\0", "b": 2**70, "c": 1.0, "d": [None, {"e": True}], "é": float("inf"), "f": ""}
    episodes = learnt(Talk("t", "s").call("f").call("odd", "ok", **odd))
    (vote,) = episodes.votes("s", context(Talk("now", "s").call("f"))).of.values()
    assert repr(sorted(vote.call.arguments.items())) == repr(sorted(odd.items()))


def test_episodes_are_bounded_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentspec.memory.episodes.MAX_EPISODES", 5)
    episodes = learnt(*others(20))
    assert len(episodes) == len(episodes.numbers) == len(episodes.owners) == 5


SCOPES = ("", "s", "t", "s\0", "s\0call", "\0s", "é\ud800", "S", "s ", "None")


@pytest.mark.parametrize("scope", SCOPES)
def test_another_scope_is_found_by_nobody(scope: str) -> None:
    talk = task("alpha", "t", scope).call("odd", a="call\0x", b="\0s", c="s\0hello")
    episodes = learnt(*others(8, "filler"), talk)
    assert episodes.votes(scope, asked("alpha", scope)).of
    for other in {*SCOPES} - {scope}:
        assert not episodes.votes(other, asked("alpha", other)).of
        assert not episodes.votes(other, context(Talk("n", other).user("hello call x s"))).of
        for end in range(len(talk.history)):
            begun = Talk("n", other)
            begun.history = talk.history[:end]
            assert not episodes.votes(other, context(begun)).of


# Whole memories


def texts_in(thing: Any) -> Iterator[str]:
    """Every text that hangs on a thing, through whatever holds it."""
    found, waiting, seen = [], [thing], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(one))
        if isinstance(one, (str, bytes)):
            found.append(one if isinstance(one, str) else one.decode("utf-8", "replace"))
        elif not isinstance(one, np.ndarray):
            waiting += gc.get_referents(one)
    yield from found


def secretive(rng: random.Random, trajectory: str, scope: str) -> tuple[Talk, list[str]]:
    """A trajectory full of values that nobody else may learn of."""
    hidden = [secrets.token_hex(5) for _ in range(9)]
    talk = Talk(trajectory, scope, {"get": {}, "put": {}})
    talk.user(f'Hi, I am {hidden[0]}, "{hidden[1]}" is my code').says(f"Thank you, {hidden[2]}")
    talk.call("get", {"id": hidden[3], "rows": [{"key": hidden[4]}], hidden[5]: {"v": 1}}, name=hidden[0])
    talk.call("put", f"stored {hidden[8]}", id=hidden[3], rows=[{"key": hidden[4]}], why={"note": hidden[6]})
    if rng.random() < 0.5:
        talk.call("put", f"error: {hidden[8]}", id=hidden[7], to=[hidden[1]])
    return talk.says(f"done, {hidden[2]}"), hidden


@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([*SCOPES, "x"]))
@settings(max_examples=12, deadline=None)
def test_no_value_of_another_scope_is_ever_a_candidate(seed: int, alone: bool, scope: str) -> None:
    rng, memory, hidden = random.Random(seed), Recall(), set()
    for number in range(6):
        talk, values = secretive(rng, f"t{number}", f"t{number}" if alone else f"{scope}{number % 2}")
        hidden.update(values)
        memory.learn(talk.past(rng.choice([None, 0.0, 1.0])))
    mine, own = secretive(rng, "mine", "mine" if alone else f"{scope}2")
    talk = Talk(mine.trajectory, mine.scope, mine.tools)
    for said in mine.history:
        told = repr(memory.forecast(talk.question()))
        for call in said.calls:
            told += repr(memory.forecast(talk.question([call])))
        assert not [one for one in hidden if one in told]
        talk.history.append(said)
    assert len(own) == 9


def test_of_a_trajectory_that_is_its_own_scope_no_text_stays() -> None:
    rng, memory, hidden = random.Random(1), Recall(), []
    for number in range(6):
        talk, values = secretive(rng, f"t{number}", f"t{number}")
        memory.learn(talk.past())
        hidden += values
    kept = "\n".join(texts_in(memory))
    assert "get" in kept
    assert not [one for one in hidden if one in kept]
    blob = memory.dump()
    again = Recall()
    again.restore(blob)
    assert not [one for one in hidden if one in "\n".join(texts_in(again))]


def test_texts_of_a_scope_stay_under_its_name_only() -> None:
    rng, memory = random.Random(2), Recall()
    talk, hidden = secretive(rng, "t0", "anna")
    memory.learn(talk.past())
    parts = memory.parts
    for table in (parts.pointer.tallies.values, parts.episodes.numbers, memory.observations.results):
        assert {scope for scope, _ in table} == {"anna"}
    rest = [parts.names, parts.composer.key_sets, parts.confusions, parts.weighing, parts.episodes.index, memory.learnt]
    tallies = parts.pointer.tallies
    rest += [tallies.forms, tallies.fields, tallies.sources, tallies.shapes, tallies.slots]
    parts.names.pointer.tallies.values.clear()
    kept = "\n".join(texts_in(rest))
    assert not [one for one in hidden if one in kept]


@pytest.mark.parametrize("scope", SCOPES)
def test_scopes_stay_apart_after_a_dump(scope: str) -> None:
    memory, again = Recall(), Recall()
    for number in range(4):
        talk = Talk(f"t{number}", scope, {"f": {}}).user("go").call("f", "ok", a="all of mine").says("done")
        memory.learn(talk.past())
    again.restore(memory.dump())
    for asking in {*SCOPES, scope.replace("\ud800", "?")}:
        question = Talk("asked", asking, {"f": {}}).user("go").question()
        assert ("of mine" in repr(again.forecast(question))) == (asking == scope)
        assert again.forecast(question) == memory.forecast(question)


def test_values_come_back_from_a_dump_as_they_were() -> None:
    memory, again = Recall(), Recall()
    for number in range(4):
        memory.learn(
            Talk(f"t{number}", "s").user("go").call("f", "\ud800", a="\ud800", b="\0", c=2**70).says("so").past()
        )
    again.restore(memory.dump())
    question = Talk("asked", "s").user("go").question()
    assert again.forecast(question) == memory.forecast(question)
    assert again.forecast(question).candidates[0].call.arguments == {"a": "\ud800", "b": "\0", "c": 2**70}


@pytest.mark.parametrize("names", [["mary_at_home"], ["mary smith"], ["W12"], ["mary@x.org", "ok"]])
def test_keys_that_are_data_reach_no_other_scope(names: list[str]) -> None:
    memory, tools = Recall(), {"put": {"type": "object", "properties": {"prices": {"type": "object"}}}}
    for number in range(8):
        talk = Talk(f"t{number}", "anna", tools).user("save it")
        memory.learn(talk.call("put", "ok", **{name: f"v{number}" for name in names}).says("done").past())
    answer: Forecast = memory.forecast(Talk("x", "bert", tools).user("save it").question())
    assert not [name for name in names if name in repr(answer)]
