"""The automaton against a search by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.verifier.drafting.automaton import Automaton, Match
from agentspec.verifier.drafting.corpus import Corpus, Reader

texts_of = st.lists(st.lists(st.integers(0, 3), max_size=25), min_size=1, max_size=4)
context_of = st.lists(st.integers(0, 4), max_size=25)


def occurs(texts: Sequence[Sequence[int]], part: Sequence[int]) -> list[tuple[int, int]]:
    """Where a part ends: text and index of the token after it."""
    size = len(part)
    return [
        (number, end)
        for number, text in enumerate(texts)
        for end in range(size, len(text) + 1)
        if list(text[end - size : end]) == list(part)
    ]


def longest(texts: Sequence[Sequence[int]], context: Sequence[int]) -> int:
    return max(n for n in range(len(context) + 1) if n == 0 or occurs(texts, context[len(context) - n :]))


def followers(texts: Sequence[Sequence[int]], part: Sequence[int]) -> Counter[int]:
    return Counter(texts[number][end] for number, end in occurs(texts, part) if end < len(texts[number]))


def built(texts: Sequence[Sequence[int]], pieces: Sequence[int]) -> Automaton:
    """In the given piece sizes."""
    automaton = Automaton(16)
    sizes = list(pieces) or [3]
    for text in texts:
        automaton.end_text()
        at = turn = 0
        while at < len(text):
            size = sizes[turn % len(sizes)]
            automaton.extend(text[at : at + size])
            at, turn = at + size, turn + 1
    return automaton


@settings(max_examples=200, deadline=None)
@given(texts_of, context_of, st.lists(st.integers(1, 7), max_size=4))
def test_a_match_is_the_longest_end_that_occurs(texts: list[list[int]], context: list[int], pieces: list[int]) -> None:
    automaton = built(texts, pieces)
    match = Match()
    for end in range(len(context)):
        automaton.follow(match, context[end : end + 1])
        assert match.length == longest(texts, context[: end + 1])


@settings(max_examples=150, deadline=None)
@given(texts_of, context_of, st.data())
def test_a_match_stays_right_while_the_text_grows(
    texts: list[list[int]], context: list[int], data: st.DataObject
) -> None:
    automaton = built(texts[:1], [])
    read = [texts[0]]
    match = Match()
    for end in range(len(context)):
        automaton.follow(match, context[end : end + 1])
        assert match.length == longest(read, context[: end + 1])
        if len(read) < len(texts) and data.draw(st.booleans()):
            automaton.end_text()
            automaton.extend(texts[len(read)])
            read.append(texts[len(read)])
            # text that came later may hold more of the context: a match learns of it with the next token
            caught_up = Match()
            automaton.follow(caught_up, context[: end + 1])
            assert caught_up.length == longest(read, context[: end + 1])
            match = caught_up


@settings(max_examples=200, deadline=None)
@given(texts_of, context_of, st.integers(1, 3))
def test_continuations_are_those_of_the_longest_end_that_was_followed(
    texts: list[list[int]], context: list[int], least: int
) -> None:
    automaton = built(texts, [])
    match = Match()
    automaton.follow(match, context)
    tree = automaton.continuations(match, least, 5, 24)
    length = match.length
    while length and not followers(texts, context[len(context) - length :]):
        length -= 1
    if length < least:
        assert tree.tokens == []
        return
    end = context[len(context) - length :]
    for branch in tree.branches():
        said = [tree.tokens[node] for node in branch]
        for size in range(1, len(said) + 1):
            assert occurs(texts, [*end, *said[:size]])
    firsts = [node for node, parent in enumerate(tree.parents) if parent == -1]
    counts = followers(texts, end)
    best = counts.most_common()[0][1]
    assert counts[tree.tokens[firsts[0]]] == best
    shares = [tree.confidences[node] for node in firsts]
    assert shares == sorted(shares, reverse=True) and sum(shares) <= 1.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=30), min_size=1, max_size=12), context_of)
def test_a_corpus_forgets_whole_generations_and_stays_in_its_bounds(texts: list[list[int]], context: list[int]) -> None:
    corpus = Corpus(64, 4)
    reader = Reader(corpus, context)
    for text in texts:
        corpus.add(text)
        assert len(corpus) <= 64 and len(corpus.automata) <= 4
        reader.extend(text[:2])
        for tree in reader.continuations(1, 4, 8):
            assert tree.tokens
    match = Match()
    newest = corpus.automata[max(corpus.automata)]
    newest.follow(match, texts[-1][-15:])
    assert match.length == len(texts[-1][-15:])


def test_a_reader_sees_what_is_added_after_it_began() -> None:
    corpus = Corpus(1000)
    corpus.add([9, 9, 1, 2, 7])
    reader = Reader(corpus, [4, 5, 6, 1, 2])
    assert [tree.tokens for tree in reader.continuations(2, 3, 8)] == [[7]]
    corpus.add([4, 5, 6, 1, 2, 8])
    assert [tree.tokens for tree in reader.continuations(3, 3, 8)] == [[8]]


def test_long_repetition_is_read_in_linear_time() -> None:
    automaton = Automaton()
    automaton.extend([5] * 50_000)
    match = Match()
    automaton.follow(match, [5] * 40)
    tree = automaton.continuations(match, 2, 8, 8)
    assert tree.tokens == [5] * 8
    assert automaton.nbytes < 300 * 65_536
