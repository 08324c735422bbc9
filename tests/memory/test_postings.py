"""The inverted index answers as a plain dictionary would, however its runs were merged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.memory.postings import COMMON, Postings

terms = st.integers(0, 12) | st.sampled_from([2**63, 2**64 - 1, 2**63 - 1])
added = st.lists(st.lists(terms, max_size=8, unique=True), max_size=60)


class Naive:
    """The same index as a dictionary."""

    def __init__(self) -> None:
        self.held: dict[int, list[int]] = {}

    def add(self, terms: list[int], episode: int) -> None:
        for term in terms:
            self.held.setdefault(term, []).append(episode)

    def episodes(self, term: int, limit: int) -> list[int]:
        return self.held.get(term, [])[-limit:]

    def similar(self, terms: list[int], episodes: int) -> dict[int, float]:
        weight = {one: max(math.log((episodes + 1) / (len(self.held.get(one, [])) + 0.5)), 0.0) for one in terms}
        scores: dict[int, float] = {}
        for term in terms:
            for number in self.held.get(term, [])[-COMMON:] if weight[term] >= 0.7 else ():
                scores[number] = scores.get(number, 0.0) + weight[term]
        return {number: score / max(sum(weight.values()), 1e-9) for number, score in scores.items()}


@given(added, st.sampled_from([1, 2, 3, 7, 20, 8192]), st.integers(1, 70), st.lists(terms, unique=True, max_size=8))
@settings(max_examples=200, deadline=None)
def test_it_answers_like_a_dictionary(lists: list[list[int]], run: int, limit: int, asked: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentspec.memory.postings.RUN", run)
        postings, naive = Postings(), Naive()
        for number, one in enumerate(lists):
            postings.add(one, number)
            naive.add(one, number)
    for term in {*naive.held, 99}:
        assert postings.episodes(term, limit) == naive.episodes(term, limit)
    found, meant = postings.similar(np.array(asked, np.uint64), len(lists)), naive.similar(asked, len(lists))
    assert len(found) == min(len(meant), 16)
    assert [score for _, score in found] == pytest.approx(sorted(meant.values(), reverse=True)[:16])
    assert all(score == pytest.approx(meant[number]) for number, score in found)


def test_many_postings_over_many_merges_are_all_found() -> None:
    postings, naive, random = Postings(), Naive(), np.random.default_rng(7)
    for number in range(3000):
        one = np.unique(random.zipf(1.3, 20) % 5000).tolist()
        postings.add(one, number)
        naive.add(one, number)
    for term in [*range(50), *random.integers(0, 5000, 200).tolist()]:
        assert postings.episodes(term, 64) == naive.episodes(term, 64)


def test_the_latest_come_last_and_of_alike_ones_first() -> None:
    postings = Postings()
    for number in range(10):
        postings.add([5, 100 + number], number)
    assert postings.episodes(5, 3) == [7, 8, 9]
    postings.add([7], 10)
    postings.add([7], 11)
    assert [number for number, _ in postings.similar(np.array([7], np.uint64), 12)] == [11, 10]


def test_the_share_of_all_terms_is_one_and_of_common_ones_nothing() -> None:
    postings = Postings()
    for number in range(100):
        postings.add([1, 1000 + number, 2000 + number], number)
    (best, share), *_ = postings.similar(np.array([1, 1042, 2042], np.uint64), 100)
    assert best == 42 and share == pytest.approx(1.0, abs=0.01)
    assert postings.similar(np.array([1], np.uint64), 100) == []


def test_nothing_asked_or_nothing_known_is_nothing_found() -> None:
    assert Postings().similar(np.array([], np.uint64), 0) == Postings().similar(np.array([3], np.uint64), 5) == []
    assert Postings().episodes(3, 8) == []


def test_a_posting_stays_small() -> None:
    postings = Postings()
    for number in range(2000):
        postings.add(list(range(number, number + 50)), number)
    assert postings.size_bytes < 40 * 2000 * 50
