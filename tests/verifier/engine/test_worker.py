"""The running engine: memory, drafts that fail, load, and its figures."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from agentspec.verifier.drafting.protocol import Draft, Opening
from agentspec.verifier.engine.cost_model import CostModel
from agentspec.verifier.engine.interface import DraftCount, Event, Submission
from agentspec.verifier.verification.sampling import SamplingParams

PROMPT = list(range(20, 90))


class Endless:
    """A constraint that allows all but the end."""

    def __init__(self, runner: Any) -> None:
        self.mask = torch.ones(runner.vocab_size, dtype=torch.bool)
        self.mask[list(runner.eos_ids)] = False

    def allowed(self) -> torch.Tensor:
        return self.mask

    def advance(self, token: int) -> None:
        pass

    def rollback(self, count: int) -> None:
        pass

    def valid_prefix(self, tokens: Sequence[int]) -> int:
        return len(tokens)

    def forced(self) -> list[int]:
        return []

    def finished(self) -> bool:
        return False


class Parrot:
    """Drafts that a test sets: `say(request id) -> tokens after those generated`."""

    name = "parrot"
    cost_s_per_token = 0.0

    def __init__(self, answer: list[int] | Exception) -> None:
        self.answer = answer
        self.openings: list[Opening] = []

    def open(self, opening: Opening) -> Parrot:
        self.openings.append(opening)
        self.done = 0
        return self

    def extend(self, tokens: Sequence[int]) -> None:
        self.done += len(tokens)

    def propose(self, limit_tokens: int) -> Sequence[Draft]:
        if isinstance(self.answer, Exception):
            raise self.answer
        left = tuple(self.answer[self.done :][:limit_tokens])
        return [Draft(left, (0.99,) * len(left), "parrot")] if left else []

    def close(self) -> None:
        self.openings.pop()


def test_forking_64_probes_adds_only_their_own_last_blocks(make_bench: Any, runner: Any) -> None:
    bench = make_bench(max_batch=80, prefill_chunk=4096)
    prompt = PROMPT * 9
    turn = bench.submit(prompt, max_new=1000, constraint=Endless(runner))
    turn.next(), turn.next()
    alone = bench.engine.stats().blocks_used
    probes = [bench.submit([*prompt, i], max_new=1000, priority=10, constraint=Endless(runner)) for i in range(64)]
    for probe in probes:
        probe.next()
        assert probe.started.cached_tokens >= len(prompt) - 1
    together = bench.engine.stats().blocks_used
    assert together - alone <= 64 * 2 + 2  # each writes into one or two blocks of its own
    for answer in [turn, *probes]:
        answer.ticket.cancel()
    bench.settle()
    assert bench.engine.stats().blocks_used == 0


def test_exact_drafts_save_steps_and_are_counted(make_bench: Any) -> None:
    plain = make_bench().submit(PROMPT, max_new=30).wait()
    parrot = Parrot(plain.ids)
    bench = make_bench(drafters=(parrot,))
    drafted = bench.submit(PROMPT, max_new=30, request_id="r1", session="s", workspace="w", expected=("e",))
    drafted.next()
    (opening,) = parrot.openings
    assert (opening.request_id, opening.session, opening.workspace, opening.expected) == ("r1", "s", "w", ("e",))
    assert list(opening.prompt) == PROMPT
    assert drafted.wait().ids == plain.ids
    end = drafted.finished
    assert end.accepted_tokens > 0 and end.saved_steps > 0 and end.drafted_tokens >= end.accepted_tokens
    stats = bench.engine.stats()
    assert stats.drafts == {"parrot": DraftCount(end.drafted_tokens, end.accepted_tokens)}
    assert stats.steps < len(plain.ids) + 2 and stats.decode_tokens == len(plain.ids)
    assert parrot.openings == []


def test_other_drafters_start_with_nothing_known(make_bench: Any) -> None:
    bench = make_bench(drafters=(Parrot([1, 2, 3] * 10),))
    plain = bench.submit(PROMPT, max_new=30).wait()
    parrot = Parrot(plain.ids)
    bench.engine.redraft([parrot])
    assert bench.engine.stats().drafts == {}
    drafted = bench.submit(PROMPT, max_new=30).wait()
    assert drafted.ids == plain.ids and drafted.finished.accepted_tokens > 0
    bench.engine.redraft([])
    assert bench.submit(PROMPT, max_new=30).wait().ids == plain.ids and bench.engine.stats().drafts == {}


def modelled_s(bench: Any, runner: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    """Time that 20 requests of up to 40 tokens would take on a device where 8 rows cost twice as much as one."""
    cost = CostModel([1, 8, 64], [0.1, 0.2, 1.0])
    total, run = 0.0, runner.run

    def timed(segments: Any, store: Any) -> Any:
        nonlocal total
        rows = sum(len(s.tokens) for s in segments if s.logits)
        total += cost.seconds(rows) if rows else 0.0
        return run(segments, store)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run", timed)
        for index in range(20):
            bench.submit([*PROMPT, index], max_new=40).wait()
    return total


class Wrong(Parrot):
    """Sure of itself, and never right."""

    def propose(self, limit_tokens: int) -> Sequence[Draft]:
        count = min(limit_tokens, 8)
        return [Draft((3 + self.done % 200,) * count, (0.9,) * count, "wrong")]


def test_drafts_that_are_always_wrong_are_soon_left_alone(
    make_bench: Any, runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = CostModel([1, 8, 64], [0.1, 0.2, 1.0])
    monkeypatch.setattr(cost, "observe", lambda *_: None)
    monkeypatch.setitem(runner.__dict__, "cost", cost)
    plain = modelled_s(make_bench(), runner, monkeypatch)
    wrong = make_bench(drafters=(Wrong([]),))
    took = modelled_s(wrong, runner, monkeypatch)

    assert took < plain / 0.97
    assert wrong.engine.stats().drafts["wrong"].drafted > 0


def test_who_does_not_want_drafts_gets_none(make_bench: Any) -> None:
    parrot = Parrot([5] * 100)
    result = make_bench(drafters=(parrot,)).submit(PROMPT, speculate=False, max_new=5).wait()
    assert result.finished.drafted_tokens == 0 and parrot.openings == []


def test_a_drafter_that_fails_costs_only_its_drafts(make_bench: Any) -> None:
    plain = make_bench().submit(PROMPT, max_new=10).wait()
    broken = make_bench(drafters=(Parrot(RuntimeError("no idea")),))
    assert broken.submit(PROMPT, max_new=10).wait().ids == plain.ids


def test_drafts_change_neither_logprobs_nor_samples(make_bench: Any) -> None:
    for params in (SamplingParams(temperature=0, top_logprobs=3), SamplingParams(temperature=1.2, seed=5)):
        plain = make_bench().submit(PROMPT, params=params).wait()
        for answer in (plain.ids, [5, *plain.ids], plain.ids[:4] + [5] * 20):
            drafted = make_bench(drafters=(Parrot(answer),)).submit(PROMPT, params=params).wait()
            assert drafted.tokens == plain.tokens


def test_a_prompt_that_can_never_fit_is_refused_with_the_reason(make_bench: Any, runner: Any) -> None:
    bench = make_bench(cache_bytes=4 * 32 * runner.kv_shape.bytes_per_token)
    refused = bench.submit(PROMPT * 2).wait()
    assert refused.failed.code == "too_long" and "95" in refused.failed.message
    fits = bench.submit(PROMPT, max_new=1000).wait()
    assert fits.reason in ("stop", "length") and len(PROMPT) + len(fits.ids) <= 96


def test_under_memory_pressure_a_probe_is_dropped_and_told_so(make_bench: Any, runner: Any) -> None:
    bench = make_bench(cache_bytes=8 * 32 * runner.kv_shape.bytes_per_token)
    probe = bench.submit(PROMPT, max_new=1000, priority=10, constraint=Endless(runner))
    probe.next()
    turn = bench.submit([5, *PROMPT * 3], max_new=10)
    assert probe.wait().failed.code == "dropped"
    assert turn.wait().error is None
    assert bench.engine.stats().dropped == 1


def test_idle_work_is_dropped_when_work_arrives(make_bench: Any, runner: Any) -> None:
    bench = make_bench()
    ahead = bench.submit(PROMPT, max_new=1000, idle=True, constraint=Endless(runner))
    ahead.next(), ahead.next()
    probe = bench.submit([*PROMPT, 5], max_new=3, priority=10)
    assert ahead.wait().failed.code == "dropped"
    assert probe.wait().error is None
    assert probe.started.cached_tokens >= len(PROMPT) - 1


def test_cancelling_frees_blocks_within_a_step(make_bench: Any) -> None:
    bench = make_bench(prefill_chunk=4)
    long = bench.submit(PROMPT * 8, max_new=5)
    long.next()
    before = bench.engine.stats().steps
    long.ticket.cancel()
    bench.settle()
    assert bench.engine.stats().steps - before <= 2
    assert bench.engine.stats().blocks_used == 0


def test_a_submitter_that_cannot_take_events_loses_only_its_own_request(make_bench: Any) -> None:
    bench = make_bench()
    calls: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def sink(event: Event) -> None:
        calls.put(event)
        raise ValueError("full")

    ticket = bench.engine.submit(Submission(PROMPT, SamplingParams(temperature=0), max_new=500), sink)
    other = bench.submit([*PROMPT, 5], max_new=5).wait()
    assert other.error is None
    bench.settle()
    assert ticket.cancelled and calls.qsize() == 1


def test_a_model_fault_leaves_no_block_behind(make_bench: Any, runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make_bench(drafters=(Parrot([5] * 100),))
    first = bench.submit(PROMPT, max_new=500, constraint=Endless(runner))
    first.next(), first.next()
    run = runner.run
    monkeypatch.setattr(runner, "run", lambda *_: (_ for _ in ()).throw(MemoryError("no memory")))
    assert "no memory" in (first.wait().error or "")
    monkeypatch.setattr(runner, "run", run)
    bench.settle()
    assert bench.engine.stats().blocks_used == 0


def test_figures_add_up(make_bench: Any) -> None:
    bench = make_bench()
    bench.submit(PROMPT, max_new=5).wait()
    again = bench.submit(PROMPT, max_new=5).wait()
    bench.settle()
    stats = bench.engine.stats()
    assert stats.running == stats.waiting == stats.blocks_used == 0
    assert stats.blocks_cached + stats.blocks_free > 100 and stats.blocks_cached >= 3
    assert stats.cached_tokens == len(PROMPT) - 1 and stats.prefill_tokens == len(PROMPT)
    assert stats.decode_tokens == 2 * len(again.ids) and stats.step_s > 0 and stats.drafts == {}
