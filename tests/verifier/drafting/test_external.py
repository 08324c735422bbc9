"""Drafts from outside: used where the answer reaches them, however it is cut, and again after a difference."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.verifier.drafting.alignment import TAIL_BYTES, Alignment
from agentspec.verifier.drafting.external import ExternalDrafter
from agentspec.verifier.drafting.protocol import Opening
from agentspec.verifier.text import Text

CALL = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 3, "units": "metric", '
    '"note": "grün größer ñandú 你好 😀 été, a helpful assistant"}}\n</tool_call>'
)
PLAN = "Plan: I look up the weather, so I call the tool.\n"


class Bytes:
    """A tokenizer whose tokens are bytes; 256 is a special one."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return b"" if token == 256 else bytes([token])


def opened(text: Text, *drafts: Any, prompt: str = "", expected: tuple[str, ...] = ()) -> Any:
    drafter = ExternalDrafter(text)
    if drafts:
        drafter.offer("r", drafts)
    return drafter.open(Opening("r", tuple(text.encode(prompt)), expected=expected))


@pytest.mark.parametrize("before", ["", PLAN, PLAN * 3])
@pytest.mark.parametrize("tokens", [False, True])
def test_an_exact_draft_is_used_as_soon_as_the_answer_reaches_it(
    text: Text, fit: Callable[..., Any], before: str, tokens: bool
) -> None:
    draft = text.encode(CALL) if tokens else CALL
    answer = text.encode(before + CALL)
    got = fit(opened(text, draft), answer, 64)
    assert got.steps <= len(text.encode(before)) + 6
    assert got.stood >= len(text.encode(CALL)) - 6


@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.sampled_from(["alpha ", "beta ", "delta ", "12 ", '"x": ', "é "]), min_size=20, max_size=40))
@pytest.mark.parametrize("edit", ["replaced", "inserted", "left out"])
def test_one_edited_word_costs_a_few_tokens(fit: Callable[..., Any], words: list[str], edit: str) -> None:
    codec: Any = Bytes()
    draft = [f"{index}:{word}" for index, word in enumerate(words)]
    middle = len(draft) // 2
    there = {"replaced": ["OMEGA "], "inserted": ["OMEGA ", draft[middle]], "left out": []}[edit]
    said = "".join([*draft[:middle], *there, *draft[middle + 1 :]])
    got = fit(opened(codec, "".join(draft)), codec.encode(said), 1000)
    assert got.steps <= 20  # the edited bytes, and a few in which the place is found again


def test_an_answer_that_is_cut_in_another_way_is_followed(text: Text, fit: Callable[..., Any]) -> None:
    unusual = [token for char in CALL for token in text.encode(char)]
    assert unusual != text.encode(CALL)
    session = opened(text, CALL)
    for token in unusual[:40]:
        session.extend([token])
    rest = b"".join(map(text.piece, unusual[40:])).decode()
    assert fit(session, text.encode(rest), 200).steps <= 4


def test_a_probe_that_begins_inside_the_draft_finds_its_place(text: Text, fit: Callable[..., Any]) -> None:
    start = CALL.index('"city"')
    session = opened(text, CALL, prompt=PLAN + CALL[:start])
    assert fit(session, text.encode(CALL[start:]), 200).steps <= 2


def test_a_draft_of_the_middle_of_the_answer_is_used(text: Text, fit: Callable[..., Any]) -> None:
    start = CALL.index("get_weather")
    assert fit(opened(text, CALL[start:]), text.encode(PLAN + CALL), 200).stood > 0.6 * len(text.encode(CALL))


def test_a_predicted_file_is_used_where_it_stands_escaped(text: Text, fit: Callable[..., Any]) -> None:
    file = 'def f(city):\n    return f"weather of {city}"\n\n' * 4
    escaped = file.replace('"', '\\"').replace("\n", "\\n")
    call = f'{{"name": "write_file", "arguments": {{"content": "{escaped}"}}}}'
    plain = len(text.encode(call))
    assert fit(opened(text, expected=(file,)), text.encode(call), 32).steps < plain / 2


def test_drafts_may_come_before_and_during_the_request_from_any_thread(text: Text, fit: Callable[..., Any]) -> None:
    drafter = ExternalDrafter(text)
    assert drafter.offer("r", [CALL]) is False
    session = drafter.open(Opening("r", ()))
    assert session.propose(4)
    other = CALL.replace("Paris", "Madrid").replace("metric", "kelvin")
    thread = threading.Thread(target=lambda: drafter.offer("r", [other]))
    thread.start()
    thread.join()
    assert drafter.offer("r", []) is True
    session.extend(text.encode(PLAN))
    assert fit(session, text.encode(other), 64).steps < 25
    session.close()
    assert drafter.offer("r", [CALL]) is False


def test_drafts_for_requests_that_never_come_are_forgotten(text: Text) -> None:
    drafter = ExternalDrafter(text, kept_s=0.0)
    drafter.offer("r", [CALL])
    assert not drafter.open(Opening("r", ())).propose(4)
    for number in range(1000):
        drafter.offer(f"r{number}", [CALL])
    assert len(drafter._posts) <= 300


@settings(max_examples=150, deadline=None)
@given(st.text("ab{\n", max_size=60), st.lists(st.sampled_from([*b"ab{\n", 256]), max_size=60), st.integers(1, 9))
def test_nothing_that_an_answer_does_breaks_an_alignment(draft: str, answer: list[int], limit: int) -> None:
    codec = Bytes()
    alignment = Alignment(codec, draft.encode())
    said = b""
    for token in answer:
        said += codec.piece(token)
        alignment.feed(token, said[-TAIL_BYTES:])
        coming = alignment.upcoming(limit)
        assert len(coming) <= limit
        assert bytes(coming) == draft.encode()[alignment.at :][: len(coming)]
        if alignment.agreed:
            assert said.endswith(draft.encode()[max(0, alignment.at - alignment.agreed) : alignment.at])


def test_garbage_and_empty_drafts_do_no_harm(text: Text, fit: Callable[..., Any]) -> None:
    session = opened(text, "", [], "\x00\ufffd", [0, 1, 2], "zzz" * 1000)
    answer = text.encode(PLAN + CALL)
    assert fit(session, answer, 8).steps <= len(answer)
