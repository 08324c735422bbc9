"""Prompt lookup against a search by hand."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.verifier.drafting.ngram import NgramDrafter
from agentspec.verifier.drafting.protocol import Opening


def looked_up(text: list[int], limit: int) -> list[int]:
    """What followed the latest of the places that agree longest (two tokens or more) with the end of the text."""
    best, place = 1, 0
    for position in range(1, len(text)):
        agreed = 0
        while agreed < position and text[position - 1 - agreed] == text[len(text) - 1 - agreed]:
            agreed += 1
        if agreed >= max(best, 2) and (agreed > best or position > place):
            best, place = agreed, position
    if best < 2:
        return []
    said = text[place : place + limit]
    while len(said) < limit:
        said.append(said[len(said) - (len(text) - place)])
    return said


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.lists(st.integers(0, 3), max_size=9), max_size=5))
def test_it_finds_the_latest_longest_agreement(prompt: list[int], steps: list[list[int]]) -> None:
    session = NgramDrafter().open(Opening("r", tuple(prompt)))
    text = list(prompt)
    for step in [[], *steps]:
        session.extend(step)
        text += step
        drafts = session.propose(6)
        assert [list(draft.tokens) for draft in drafts] == [said for said in [looked_up(text, 6)] if said]
        assert all(math.prod(draft.confidences[:-1]) >= 0.02 for draft in drafts)


def test_a_longer_agreement_is_trusted_more() -> None:
    short = NgramDrafter().open(Opening("r", (1, 2, 3, 9, 1, 2))).propose(1)[0]
    long = NgramDrafter().open(Opening("r", (5, 6, 7, 1, 2, 3, 9, 5, 6, 7, 1, 2))).propose(1)[0]
    assert short.tokens == long.tokens == (3,)
    assert short.confidences[0] < long.confidences[0] < 1
