"""Greedy output is that of plain transformers: any family, any drafts, any company, with and without room."""

# ruff: noqa: E402 - nothing here can be imported without torch
from __future__ import annotations

import queue
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agentspec.verifier.drafting.protocol import Draft, Opening
from agentspec.verifier.engine.forward import Runner
from agentspec.verifier.engine.interface import (
    EngineOptions,
    Event,
    Failed,
    Finished,
    Limits,
    Submission,
    Ticket,
    Token,
)
from agentspec.verifier.engine.worker import Engine
from agentspec.verifier.verification.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0)
VOCAB = 320
NEW_TOKENS = 20
PROMPTS = 16
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.4,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
FAMILIES: dict[str, Any] = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=24)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**{**SMALL, "num_key_value_heads": 4})),
}


@dataclass(frozen=True)
class Family:
    """A model of ours, prompts, and what transformers itself makes of them."""

    runner: Runner
    prompts: list[list[int]]
    answers: list[list[int]]

    @property
    def known(self) -> dict[tuple[int, ...], list[int]]:
        return {tuple(p): a for p, a in zip(self.prompts, self.answers, strict=True)}


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(11)
    FAMILIES[request.param]().eval().save_pretrained(folder)
    rng = random.Random(1)
    shared = [rng.randrange(3, VOCAB) for _ in range(70)]
    prompts = [
        (shared if i % 3 else []) + [rng.randrange(3, VOCAB) for _ in range(rng.randrange(2, 60))]
        for i in range(PROMPTS)
    ]
    return Family(Runner(str(folder), dtype="float32", device="cpu"), prompts, plain_answers(folder, prompts))


def plain_answers(folder: Path, prompts: list[list[int]]) -> list[list[int]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    found = []
    for prompt in prompts:
        ids = model.generate(torch.tensor([prompt]), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0)
        answer = ids[0, len(prompt) :].tolist()
        found.append(answer[: answer.index(2)] if 2 in answer else answer)
    return found


class Guesser:
    """Drafts made from the true answers: `flaw` is the chance that a token is another one, `width` how many drafts."""

    name = "guesser"
    cost_s_per_token = 0.0

    def __init__(self, known: dict[tuple[int, ...], list[int]], flaw: float, width: int) -> None:
        self.known, self.flaw, self.width = known, flaw, width
        self.open_sessions = 0

    def open(self, opening: Opening) -> Guesser.Session:
        self.open_sessions += 1
        return Guesser.Session(self, self.known.get(tuple(opening.prompt), [5] * 40))

    class Session:
        def __init__(self, guesser: Guesser, answer: list[int]) -> None:
            self.guesser, self.left = guesser, list(answer)
            self.rng = random.Random(len(answer))

        def extend(self, tokens: Sequence[int]) -> None:
            self.left = self.left[len(tokens) :]

        def propose(self, limit_tokens: int) -> Sequence[Draft]:
            drafts = []
            for _ in range(self.guesser.width):
                draft = [
                    self.rng.randrange(VOCAB) if self.rng.random() < self.guesser.flaw else token
                    for token in [*self.left, 7, 7][: self.rng.randrange(1, limit_tokens + 1)]
                ]
                drafts.append(Draft(tuple(draft), (0.9,) * len(draft), "guesser"))
            return drafts

        def close(self) -> None:
            self.guesser.open_sessions -= 1


DRAFTERS = {"exact": (0.0, 1), "flawed": (0.25, 1), "garbage": (1.0, 2), "forked": (0.3, 4)}


@pytest.fixture(params=[None, *DRAFTERS])
def drafter(request: pytest.FixtureRequest, family: Family) -> Guesser | None:
    return None if request.param is None else Guesser(family.known, *DRAFTERS[request.param])


class Desk:
    """An engine, and answers gathered from it."""

    def __init__(self, family: Family, drafter: Guesser | None, **options: Any) -> None:
        limits = Limits(options.pop("max_batch", 8), options.pop("chunk", 64), options.pop("chunk_busy", 16))
        drafters = () if drafter is None else (drafter,)
        settings = {"cache_bytes": 1 << 23, "max_context": 512, **options}
        self.engine = Engine(family.runner, NoText(), EngineOptions(limits, drafters=drafters, **settings))

    def submit(self, prompt: list[int], **fields: Any) -> Answer:
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        submission = Submission(prompt, GREEDY, max_new=NEW_TOKENS, **fields)
        return Answer(self.engine.submit(submission, events.put), events)


class NoText:
    def encode(self, text: str) -> list[int]:
        raise AssertionError("no text here")

    def piece(self, token: int) -> bytes:
        raise AssertionError("no text here")


@dataclass
class Answer:
    ticket: Ticket
    events: queue.SimpleQueue[Event]

    def wait(self) -> tuple[list[int], Finished | Failed]:
        tokens = []
        while True:
            event = self.events.get(timeout=60)
            if isinstance(event, Finished | Failed):
                return tokens, event
            if isinstance(event, Token):
                tokens.append(event.id)


@pytest.fixture
def make_desk(family: Family, drafter: Guesser | None) -> Iterator[Any]:
    made: list[Desk] = []

    def make(**options: Any) -> Desk:
        made.append(Desk(family, drafter, **options))
        return made[-1]

    yield make
    for desk in made:
        desk.engine.close()
        stats = desk.engine.stats()
        assert stats.running == stats.waiting == stats.blocks_used == 0
    assert drafter is None or drafter.open_sessions == 0


def test_one_after_the_other(make_desk: Any, family: Family, drafter: Guesser | None) -> None:
    desk = make_desk()
    for prompt, answer in zip(family.prompts, family.answers, strict=True):
        tokens, end = desk.submit(prompt).wait()
        assert tokens == answer
        assert isinstance(end, Finished) and end.reason == ("length" if len(answer) == NEW_TOKENS else "stop")
        assert end.drafted_tokens >= end.accepted_tokens >= end.saved_steps >= 0


def test_all_at_once(make_desk: Any, family: Family) -> None:
    desk = make_desk()
    answers = [desk.submit(p, priority=(0, 10)[i % 2]) for i, p in enumerate(family.prompts)]
    assert [a.wait()[0] for a in answers] == family.answers


def test_with_hardly_any_room(make_desk: Any, family: Family) -> None:
    """Blocks for about three sequences: all others wait, are preempted, and come back."""
    desk = make_desk(cache_bytes=16 * 32 * family.runner.kv_shape.bytes_per_token, chunk=24, chunk_busy=24)
    answers = [desk.submit(p) for p in family.prompts]
    assert [a.wait()[0] for a in answers] == family.answers
    assert desk.engine.stats().evicted_blocks > 0


def test_forks_of_a_running_turn(make_desk: Any, family: Family) -> None:
    desk = make_desk(max_batch=16)
    prompt, answer = max(zip(family.prompts, family.answers, strict=True), key=lambda pair: len(pair[1]))
    turn = desk.submit(prompt)
    probes = [desk.submit(prompt + answer[:cut], priority=10) for cut in range(1, min(12, len(answer) - 1))]
    assert turn.wait()[0] == answer
    for cut, probe in enumerate(probes, start=1):
        tokens, _ = probe.wait()
        assert tokens[: len(answer) - cut] == answer[cut:]


def test_cancelled_ones_leave_the_others_alone(make_desk: Any, family: Family) -> None:
    desk = make_desk()
    answers = [desk.submit(p) for p in family.prompts]
    for answer in answers[::3]:
        answer.ticket.cancel()
    for index, answer in enumerate(answers):
        if index % 3:
            assert answer.wait()[0] == family.answers[index]
