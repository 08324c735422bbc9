"""The engine on the tiny model: greedy output depends neither on company nor on the cache."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentspec.verifier.engine.forward import Runner, chain
from agentspec.verifier.engine.interface import Started, Token
from agentspec.verifier.engine.linears import works
from agentspec.verifier.text import Text
from agentspec.verifier.verification.sampling import SamplingParams

GREEDY_LOGPROBS = SamplingParams(temperature=0, top_logprobs=2)


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    """Random prompts of 3 to 150 tokens, half of them sharing their first 40."""
    rng = random.Random(seed)
    shared = [rng.randrange(3, 370) for _ in range(40)]
    return [
        (shared if i % 2 else []) + [rng.randrange(3, 370) for _ in range(rng.randrange(3, 110))] for i in range(count)
    ]


class Script:
    """A constraint that allows one given token after the other; forces as many as `ahead` says."""

    def __init__(self, tokens: list[int], vocab: int, ahead: int) -> None:
        self.left, self.vocab, self.ahead = list(tokens), vocab, ahead

    def allowed(self) -> torch.Tensor:
        mask = torch.zeros(self.vocab, dtype=torch.bool)
        mask[self.left[0]] = True
        return mask

    def advance(self, token: int) -> None:
        assert token == self.left.pop(0)

    def forced(self) -> list[int]:
        return self.left[: self.ahead]

    def rollback(self, count: int) -> None:
        raise AssertionError("only what stands is advanced over")

    def valid_prefix(self, tokens: Any) -> int:
        return next((i for i, (a, b) in enumerate(zip(tokens, self.left, strict=False)) if a != b), len(self.left))

    def finished(self) -> bool:
        return not self.left


@pytest.fixture(scope="module")
def alone(runner: Runner) -> Callable[[list[int], int], list[int]]:
    """Greedy decoding with nothing but one whole forward per token: the oracle."""

    store, table = runner.store(32), range(32)

    def decode(prompt: list[int], count: int) -> list[int]:
        tokens = list(prompt)
        for _ in range(count):
            token = int(runner.run([chain(tokens, 0, table, 1)], store)[0][-1].argmax())
            if token in runner.eos_ids:
                break
            tokens.append(token)
        return tokens[len(prompt) :]

    return decode


def test_ragged_forward_equals_plain_transformers(runner: Runner, tiny_folder: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    texts = prompts(4)
    store = runner.store(8 * len(texts))
    tables = [range(8 * i, 8 * i + 8) for i in range(len(texts))]
    heads = runner.run([chain(t[:2], 0, table, 0) for t, table in zip(texts, tables, strict=True)], store)
    assert all(h.shape == (0, runner.vocab_size) for h in heads)
    rows = runner.run([chain(t[2:], 2, table, len(t) - 2) for t, table in zip(texts, tables, strict=True)], store)
    for tokens, row in zip(texts, rows, strict=True):
        with torch.inference_mode():
            expected = plain(torch.tensor([tokens])).logits[0, 2:]
        torch.testing.assert_close(row, expected, atol=2e-3, rtol=1e-4)


def test_a_row_has_the_same_bits_in_any_batch(runner: Runner) -> None:
    texts = prompts(6, seed=5)
    store = runner.store(8 * len(texts))
    tables = [range(8 * i, 8 * i + 8) for i in range(len(texts))]
    runner.run([chain(t, 0, table, 0) for t, table in zip(texts, tables, strict=True)], store)
    segments = [chain([7], len(t), table, 1) for t, table in zip(texts, tables, strict=True)]
    single = runner.run(segments[:1], store)[0]
    for size in range(2, 7):
        row = runner.run(segments[:size], store)[0]
        if works():
            assert torch.equal(row, single)
        torch.testing.assert_close(row, single, atol=1e-5, rtol=1e-5)


def test_greedy_is_the_same_alone_and_in_company(bench: Any, alone: Any) -> None:
    texts = prompts(24)
    results = [bench.submit(p, max_new=12, priority=i % 3) for i, p in enumerate(texts)]
    for prompt, result in zip(texts, results, strict=True):
        assert result.wait().ids == alone(prompt, 12)


def test_greedy_is_the_same_from_the_cache(bench: Any, alone: Any) -> None:
    for prompt in prompts(8):
        expected = alone(prompt, 12)
        first = bench.submit(prompt, max_new=12).wait()
        again = bench.submit(prompt, max_new=12).wait()
        longer = bench.submit(prompt + expected[:6] + [9, 9], max_new=4).wait()
        assert first.ids == again.ids == expected
        assert again.started == Started(len(prompt), len(prompt) - 1)
        assert longer.started is not None and longer.started.cached_tokens == len(prompt) + len(expected[:6])
        assert longer.ids == alone(prompt + expected[:6] + [9, 9], 4)


def test_a_probe_forks_from_its_running_turn(bench: Any, alone: Any) -> None:
    prompt = prompts(2)[1] * 3
    turn = bench.submit(prompt, max_new=400)
    while len(turn.tokens) < 3:
        turn.next()
    probe = bench.submit(prompt + turn.ids[:3] + [11, 12, 13], max_new=10, priority=10).wait()
    assert probe.started is not None and probe.started.cached_tokens >= len(prompt)
    assert probe.ids == alone(prompt + turn.ids[:3] + [11, 12, 13], 10)
    turn.ticket.cancel()


def test_a_probe_sent_with_its_turn_waits_for_the_shared_prompt(make_bench: Any) -> None:
    bench = make_bench(prefill_chunk=16)
    prompt = prompts(2)[1] * 3
    turn = bench.submit(prompt, max_new=5)
    probe = bench.submit([*prompt, 5, 6, 7], max_new=5, priority=10)
    assert turn.wait().started == Started(len(prompt), 0)
    started = probe.wait().started
    assert started is not None and started.cached_tokens >= len(prompt) - 16


def test_cancelling_frees_the_sequence_and_leaves_the_others_alone(bench: Any, alone: Any) -> None:
    rng = random.Random(1)
    texts = prompts(20, seed=2)
    results = [bench.submit(p, max_new=15) for p in texts]
    for result in rng.sample(results, 8):
        result.ticket.cancel()
    for prompt, result in zip(texts, results, strict=True):
        if not result.ticket.cancelled:
            assert result.wait().ids == alone(prompt, 15)
    bench.settle()


def test_cancelling_before_the_first_token_leaves_within_a_step(make_bench: Any) -> None:
    bench = make_bench(prefill_chunk=4)
    result = bench.submit(prompts(1)[0] * 8, max_new=5)
    assert isinstance(result.next(), Started)
    before = bench.engine.stats().steps
    result.ticket.cancel()
    bench.settle()
    assert bench.engine.stats().steps - before <= 2
    assert result.events.empty()


def test_a_full_batch_makes_room_for_a_turn(make_bench: Any) -> None:
    bench = make_bench(max_batch=2)
    probes = [bench.submit(p, max_new=300, priority=10) for p in prompts(2)]
    for probe in probes:
        probe.next()
    turn = bench.submit(prompts(3)[2], max_new=5).wait()
    assert len(turn.ids) == 5 or turn.reason == "stop"
    assert any(p.reason is None for p in probes)
    for probe in probes:
        probe.ticket.cancel()


def test_small_cache_and_long_generations_still_agree(make_bench: Any, alone: Any) -> None:
    bench = make_bench(cache_bytes=1 << 17, prefill_chunk=7, prefill_chunk_busy=3, max_batch=3)
    texts = prompts(6, seed=9)
    results = [bench.submit(p, max_new=330 if i == 0 else 8) for i, p in enumerate(texts)]
    for prompt, result in zip(texts, results, strict=True):
        want = alone(prompt, 330 if result is results[0] else 8)
        assert result.wait().ids == want


@pytest.mark.parametrize("ahead", [0, 3, 100])
@pytest.mark.parametrize("params", [SamplingParams(temperature=0), GREEDY_LOGPROBS])
def test_forced_tokens_change_neither_tokens_nor_logprobs(
    bench: Any, runner: Runner, ahead: int, params: SamplingParams
) -> None:
    script = [30, 31, 32, 33, 34, 35, 36, 37]
    prompt = prompts(1)[0]
    result = bench.submit(prompt, constraint=Script(script, runner.vocab_size, ahead), params=params).wait()
    assert (result.ids, result.reason) == (script, "stop")
    if params.top_logprobs is None:
        return
    tokens = prompt + script
    rows = runner.run([chain(tokens, 0, range(8), len(script) + 1)], runner.store(8))[0].log_softmax(-1)
    for index, token in enumerate(result.tokens):
        assert token.logprobs is not None and len(token.logprobs.top) == 2
        assert math.isclose(token.logprobs.logprob, float(rows[index, token.id]), abs_tol=1e-3)


def test_forced_tokens_respect_the_length_limit(bench: Any, runner: Runner) -> None:
    script = Script(list(range(30, 60)), runner.vocab_size, 100)
    result = bench.submit([5, 6, 7], max_new=4, constraint=script, params=GREEDY_LOGPROBS).wait()
    assert (result.ids, result.reason) == ([30, 31, 32, 33], "length")


def test_the_context_ends_a_sequence(make_bench: Any) -> None:
    bench = make_bench(max_context=40)
    result = bench.submit(list(range(10, 40)), max_new=100).wait()
    assert result.reason == "stop" or (result.reason == "length" and len(result.ids) == 10)


def test_a_continuation_reuses_the_tokens_that_the_turn_generated(bench: Any, text: Text) -> None:
    prompt = text.encode("<|im_start|>assistant\n")
    unusual = [text.encode(c)[0] for c in "Plan"]  # the same text, not the way the tokenizer would cut it
    assert unusual != text.encode("Plan")
    bench.submit(prompt + unusual, max_new=1).wait()
    bench.settle()
    probe = bench.submit(prompt, continuation="Plan: x", max_new=1).wait()
    assert probe.started is not None
    assert probe.started.prompt_tokens == len(prompt) + 4 + len(text.encode(": x"))
    assert probe.started.cached_tokens == len(prompt) + 4


def test_sampling_repeats_with_its_seed_whatever_the_company(bench: Any) -> None:
    prompt = prompts(1)[0]
    hot = SamplingParams(temperature=1.5, top_p=0.95, top_k=50, seed=7)
    first = bench.submit(prompt, params=hot).wait().ids
    crowd = [bench.submit(p, params=SamplingParams(temperature=1.0)) for p in prompts(5, seed=4)]
    assert bench.submit(prompt, params=hot).wait().ids == first
    assert bench.submit(prompt, params=SamplingParams(temperature=1.5, seed=8)).wait().ids != first
    for result in crowd:
        result.wait()


def test_logprobs_are_a_distribution(bench: Any, runner: Runner) -> None:
    every = SamplingParams(temperature=0, top_logprobs=runner.vocab_size)
    result = bench.submit(prompts(1)[0], params=every, max_new=3).wait()
    for token in result.tokens:
        assert token.logprobs is not None
        assert math.isclose(sum(math.exp(p) for _, p in token.logprobs.top), 1.0, abs_tol=1e-4)
        assert token.logprobs.top[0] == (token.id, token.logprobs.logprob)


def test_a_fault_of_one_sequence_is_its_own(bench: Any, runner: Runner, alone: Any) -> None:
    class Broken(Script):
        def advance(self, token: int) -> None:
            raise RuntimeError("grammar fault")

    good_prompt, bad_prompt = prompts(2)
    good = bench.submit(good_prompt, max_new=6)
    bad = bench.submit(bad_prompt, constraint=Broken([30, 31], runner.vocab_size, 0)).wait()
    assert bad.error is not None and "grammar fault" in bad.error
    assert good.wait().ids == alone(good_prompt, 6)
    bench.settle()


def test_a_fault_of_the_model_fails_the_batch_and_not_the_server(
    make_bench: Any, runner: Runner, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()
    monkeypatch.setattr(runner, "run", lambda *_: (_ for _ in ()).throw(MemoryError("no memory")))
    assert "no memory" in (bench.submit([5, 6, 7]).wait().error or "")
    monkeypatch.undo()
    assert bench.submit([5, 6, 7], max_new=4).wait().ids == alone([5, 6, 7], 4)


def test_tokens_come_one_by_one(bench: Any) -> None:
    result = bench.submit(prompts(1)[0], max_new=3)
    kinds = [type(result.next()) for _ in range(2)]
    assert kinds == [Started, Token]
    result.wait()
