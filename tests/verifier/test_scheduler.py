from __future__ import annotations

from agentspec.verifier.engine.scheduler import Limits, plan, seats
from agentspec.verifier.engine.sequence import Sequence, Submission, Ticket
from agentspec.verifier.verification.sampling import SamplingParams

LIMITS = Limits(max_batch=3, prefill_chunk=100, prefill_chunk_busy=10)


def sequence(order: int, *, length: int, computed: int = 0, generated: int = 0, priority: int = 0) -> Sequence:
    submission = Submission([1] * length, SamplingParams(temperature=0), max_new=9, priority=priority)
    made = Sequence(submission, Ticket(), lambda _: None, order, [1] * length, 1000)
    made.tokens += [1] * generated
    made.computed = computed
    return made


def test_lower_priority_numbers_are_seated_first_then_older_ones() -> None:
    probe, old, new = sequence(1, length=5, priority=10), sequence(2, length=5), sequence(3, length=5)
    other = sequence(4, length=5, priority=5)
    assert seats([probe, new, other, old], LIMITS) == [old, new, other]


def test_a_prompt_alone_takes_the_large_chunk() -> None:
    long = sequence(1, length=500)
    assert plan([long], LIMITS) == [(long, 100)]


def test_a_newcomer_takes_small_bites_beside_a_running_turn() -> None:
    running, long = sequence(1, length=5, computed=5, generated=1), sequence(2, length=500)
    assert plan([running, long], LIMITS) == [(running, 1), (long, 10)]


def test_a_turn_is_not_slowed_by_a_running_probe() -> None:
    turn, probe = sequence(2, length=500), sequence(1, length=5, computed=5, generated=1, priority=10)
    assert plan([turn, probe], LIMITS) == [(turn, 100), (probe, 1)]


def test_prompts_share_one_budget() -> None:
    a, b, c = sequence(1, length=60), sequence(2, length=60), sequence(3, length=60)
    assert plan([a, b, c], LIMITS) == [(a, 60), (b, 40)]


def test_wanted_logits_are_the_last_row_or_all_rows_with_logprobs() -> None:
    prompt = sequence(1, length=20)
    assert prompt.wanted_logits(8) == 0
    assert prompt.wanted_logits(20) == 1
    forced = sequence(2, length=20, computed=20, generated=4)
    forced.emitted = 21  # one picked, three forced behind it
    assert forced.wanted_logits(4) == 1
