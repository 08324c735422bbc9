"""What memory reads of a trajectory: the same in pieces as at once, results at their calls, no foreign history."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.calls import ToolCall
from agentspec.memory.context import Context
from agentspec.memory.kernels.occurrences import FORM, KIND, MESSAGE, RANK, RECORD, VALUE
from agentspec.trajectory import Said, meaning_digest
from tests.memory.talks import Talk, talks


def whole(talk: Talk) -> Context:
    context = Context()
    assert context.sync(talk.history)
    return context


def known(context: Context) -> dict[str, Any]:
    """All that a context knows, whatever order its values were numbered in."""
    table = context.table
    where = table.rows[:, [RANK, RECORD, FORM, KIND, MESSAGE]].tolist()
    values, codes = table.rows[:, VALUE].tolist(), table.codes.tolist()
    told = [(table.keys[one], *code, *at) for one, code, at in zip(values, codes, where, strict=True)]
    by_key = lambda listed: {table.keys[i]: one for i, one in enumerate(listed)}  # noqa: E731
    plain = ("emitted", "actions", "calls", "results", "calls_by_name", "since_user", "last_record", "user_words",
             "own_words", "result_words", "facts", "fresh_from", "words_from", "message")  # fmt: skip
    return {
        **{name: getattr(context, name) for name in plain},
        "slots": {slot: [table.keys[i] for i in numbers] for slot, numbers in context.slots_used.items()},
        "values": Counter(told),
        "used": by_key(table.used.array.tolist()),
        "mentioned": by_key(table.mentioned.array.tolist()),
    }


@given(talks(), st.lists(st.integers(0, 10)))
@settings(max_examples=60, deadline=None)
def test_read_in_pieces_is_read_at_once(talk: Talk, cuts: list[int]) -> None:
    pieces = Context()
    for cut in sorted(cuts):
        assert pieces.sync(talk.history[:cut])
    assert pieces.sync(talk.history)
    assert known(pieces) == known(whole(talk))


@given(talks(), st.data())
@settings(max_examples=60, deadline=None)
def test_calls_seen_in_the_running_answer_are_not_read_again_with_its_message(talk: Talk, data: st.DataObject) -> None:
    pieces = Context()
    for place, said in enumerate(talk.history):
        for count in sorted(data.draw(st.lists(st.integers(0, len(said.calls)), max_size=3))):
            assert pieces.sync(talk.history[:place], said.calls[:count])
            assert pieces.emitted == list(said.calls[:count])
    assert pieces.sync(talk.history)
    assert known(pieces) == known(whole(talk))


@given(talks(), talks(), st.integers(0, 10))
@settings(max_examples=60, deadline=None)
def test_another_history_is_told_and_nothing_of_it_is_read(talk: Talk, other: Talk, cut: int) -> None:
    context, begun = Context(), talk.history[:cut]
    assert context.sync(begun)
    history = [*begun[:-1], *other.history]
    same = [said.digest for said in history[: len(begun)]] == [said.digest for said in begun]
    before = known(context)
    assert context.sync(history) == same
    if not same:
        assert known(context) == before


def test_a_shorter_history_is_another_one() -> None:
    talk = Talk().user("a").says("b")
    assert not whole(talk).sync(talk.history[:1])


F = ToolCall("f", {"a": 1}, "c")


@pytest.mark.parametrize(
    "made",
    [(), (ToolCall("g", {"a": 1}, "c"),), (ToolCall("f", {"a": 2}, "c"),), (ToolCall("f", {"a": True}, "c"),)],
    ids=["none", "name", "value", "type"],
)
def test_an_answer_that_did_not_make_the_emitted_call_is_another_history(made: tuple[ToolCall, ...]) -> None:
    talk = Talk().user("go")
    context = Context()
    assert context.sync(talk.history, [F])
    before = known(context)
    answer = Said("assistant", meaning_digest(repr(made)), made, frozenset(str(one.id) for one in made))
    assert not context.sync([*talk.history, answer])
    assert known(context) == before
    assert not context.sync(talk.history, made)
    assert not context.sync([*talk.history, Said("user", b"u", text="stop")])


def test_results_are_matched_by_id_in_any_order() -> None:
    talk = Talk().user("go")
    one, two, three = talk.asks(("f", {"a": 1}), ("g", {"a": 2}), ("f", {"a": 3}))
    talk.gets({three: {"v": "third"}}).gets({one: "first"})
    context = whole(talk)
    assert context.results == ["first", None, '{"v": "third"}']
    assert context.actions[-3:] == ["f:ok", "g+", "f:ok"]
    assert context.since_user == ["f", "g", "f"] and context.calls_by_name == {"f": 2, "g": 1}
    assert context.sync(talk.gets({two: []}).history)
    assert context.actions[-3:] == ["f:ok", "g:empty", "f:ok"]


@pytest.mark.parametrize("identity", [None, "other"])
def test_calls_seen_without_their_ids_get_their_results(identity: str | None) -> None:
    talk, context = Talk().user("go"), Context()
    assert context.sync(talk.history, [ToolCall("f", {"a": 1}, identity)])
    talk.call("f", "fine", a=1)
    if not context.sync(talk.history):
        context = whole(talk)
    assert context.actions[-1] == "f:ok" and context.results == ["fine"]


def test_an_id_that_is_used_again_means_the_latest_call() -> None:
    context, call = Context(), ToolCall("f", {}, "same")
    asked = Said("assistant", b"1", (call,), frozenset({"same"}))
    for text in ("old", "new"):
        context.read(asked)
        context.read(Said("tool", b"2", answers=("same",), results=(text,)))
    assert context.results == ["old", "new"]


def test_a_result_of_no_known_call_is_read_all_the_same() -> None:
    context = whole(Talk().user("go").gets({"nobody": {"v": "seen"}}))
    assert "seen" in context.table.values and context.calls == []


@pytest.mark.parametrize(
    ("result", "failed", "status"),
    [
        ("fine", False, "ok"), ("fine", True, "error"), ("Error: no such user", False, "error"), ("", False, "empty"),
        (" [] ", False, "empty"), ("{}", False, "empty"), ("null", False, "empty"), ("None", False, "empty"),
        ("0", False, "ok"), ("x" * 200 + " error", False, "ok"), ('{"e": "Order not found"}', False, "error"),
    ],
)  # fmt: skip
def test_the_status_of_a_result(result: str, failed: bool, status: str) -> None:
    talk = Talk()
    identity = talk.asks(("f", {}))[0]
    assert whole(talk.gets({identity: result}, [identity] if failed else [])).actions[-1] == f"f:{status}"


def test_results_and_texts_are_told_apart_by_what_they_are() -> None:
    kinds = {}
    for text in ('{"v": "Q"}', '\n {"v": "Q"}', "[Q] v", "Q v"):
        context = whole(Talk().call("f", text))
        rows = context.table.rows
        kinds[text] = set(rows[rows[:, VALUE] == context.table.number("Q"), KIND].tolist())
    assert list(kinds.values()) == [{0}, {0}, {1}, {1}]


def test_a_name_that_ends_in_a_dash_is_no_date() -> None:
    talk = Talk().user("It is 2024-05-01").call("f", {"day-": "07-09"}, **{"when-": "yes"})
    seen = whole(talk).table.values
    assert "yes" in seen and "2024-yes" not in seen and "07-09" in seen and "2024-07-09" not in seen


def test_a_day_without_a_year_takes_the_last_year_seen() -> None:
    talk = Talk().call("f", {"on": "2023-01-01"}).user("Make it May 17th, please")
    assert "2023-05-17" in whole(talk).table.values


def test_days_in_long_strings_of_results_have_their_year_too() -> None:
    talk = (
        Talk().user("It is 2024-05-01").call("f", {"note": "It was promised that this be done by May 17th at latest."})
    )
    seen = whole(talk).table.values
    assert "05-17" not in seen


def test_what_the_user_said_before_stays_mentioned() -> None:
    table = whole(Talk().user("Take K77").says("K77? Yes").user("and L88")).table
    assert (table.mentions("K77"), table.mentions("L88"), table.mentions("M99")) == (2 + 4, 1 + 4, 0)
