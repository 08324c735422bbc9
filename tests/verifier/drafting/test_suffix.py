"""Drafts from text that was there before: what is found, and what never crosses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentspec.verifier.drafting.protocol import Opening
from agentspec.verifier.drafting.suffix import SuffixDrafter, SuffixLimits
from agentspec.verifier.text import Text

CODE = "".join(f'def step_{n}(city):\n    return f"weather of {{city}} on day {n}"\n\n' for n in range(6))


@pytest.fixture
def drafter(text: Text) -> Iterator[SuffixDrafter]:
    drafter = SuffixDrafter(text)
    yield drafter
    drafter.close()


def opening(prompt: list[int], session: str | None = "s", workspace: str = "w") -> Opening:
    return Opening("r", tuple(prompt), session=session, workspace=workspace)


def numbers(seed: int, count: int = 60) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(300) for _ in range(count)]


def test_an_answer_that_repeats_its_prompt_is_drafted(drafter: SuffixDrafter, fit: Callable[..., Any]) -> None:
    prompt = numbers(1)
    answer = prompt[10:50]
    assert fit(drafter.open(opening(prompt)), answer).steps < 15


def test_an_answer_that_repeats_itself_is_drafted(drafter: SuffixDrafter, fit: Callable[..., Any]) -> None:
    assert fit(drafter.open(opening(numbers(1))), numbers(2, 20) * 4).steps < 40


@pytest.mark.parametrize(
    ("session", "workspace", "found"), [("s", "w", True), ("t", "w", True), (None, "w", True), ("s", "other", False)]
)
def test_an_earlier_answer_is_found_in_its_workspace_and_nowhere_else(
    drafter: SuffixDrafter, fit: Callable[..., Any], session: str | None, workspace: str, found: bool
) -> None:
    answer = numbers(3)
    first = drafter.open(opening(numbers(4)))
    first.extend(answer)
    first.close()
    got = fit(drafter.open(opening(numbers(5), session, workspace)), answer)
    assert (got.stood > 40) is found


def test_a_prompt_is_found_in_its_session_only(drafter: SuffixDrafter, fit: Callable[..., Any]) -> None:
    prompt = numbers(6)
    drafter.open(opening(prompt)).close()
    assert fit(drafter.open(opening(numbers(7))), prompt).stood > 40
    assert fit(drafter.open(opening(numbers(7), session="t")), prompt).stood == 0


def test_text_known_to_all_is_found_everywhere(text: Text, fit: Callable[..., Any]) -> None:
    call = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
    drafter = SuffixDrafter(text, known=[call])
    assert fit(drafter.open(opening(numbers(8), None, "any")), text.encode(call)).stood > 10
    drafter.close()


def test_a_file_that_was_read_is_drafted_inside_a_calls_arguments(
    drafter: SuffixDrafter, text: Text, fit: Callable[..., Any]
) -> None:
    call = json.dumps({"name": "write_file", "arguments": {"path": "a.py", "content": CODE}})
    session = drafter.open(opening(text.encode(CODE)))
    session.wait()
    with_copies = fit(session, text.encode(call))
    bare = SuffixDrafter(text, SuffixLimits(copied_tokens=0))
    without = fit(bare.open(opening(text.encode(CODE))), text.encode(call))
    bare.close()
    assert with_copies.steps < 0.8 * without.steps


def test_a_conversation_that_goes_on_is_read_once(drafter: SuffixDrafter) -> None:
    prompt = numbers(9, 400)
    for turn in range(5):
        session = drafter.open(opening(prompt))
        answer = numbers(20 + turn, 30)
        session.extend(answer)
        session.close()
        prompt = [*prompt, *answer, *numbers(40 + turn, 10)]
    assert drafter.tokens_kept() < len(prompt) + 5 * 30 + 40  # all of it once, the answers in the workspace too


def test_two_requests_of_a_session_do_not_mix(drafter: SuffixDrafter, fit: Callable[..., Any]) -> None:
    prompt, ours, theirs = numbers(10), numbers(11), numbers(12)
    turn, probe = drafter.open(opening(prompt)), drafter.open(opening(prompt))
    for a, b in zip(ours, theirs, strict=True):
        turn.extend([a])
        probe.extend([b])
    probe.close()
    turn.close()
    for answer in (ours, theirs):
        assert fit(drafter.open(opening(prompt)), answer).stood > 40


def test_memory_is_bounded_whatever_comes(text: Text) -> None:
    limits = SuffixLimits(session_tokens=512, workspace_tokens=512, all_tokens=4096, copied_tokens=64)
    drafter = SuffixDrafter(text, limits)
    for number in range(80):
        session = drafter.open(opening(numbers(number, 300), f"s{number % 40}", f"w{number % 7}"))
        session.extend(numbers(number + 1, 100))
        session.propose(8)
        session.close()
        assert drafter.tokens_kept() <= 4096 + 2 * 512 + 100
    drafter.close()
