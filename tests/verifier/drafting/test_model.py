"""Drafts by models: right where the models agree, by text where vocabularies differ, rewound where they were wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from agentspec.errors import ConfigError
from agentspec.verifier.drafting.layer_skip import layer_skip, without
from agentspec.verifier.drafting.mirror import SameText
from agentspec.verifier.drafting.model import ModelDrafter
from agentspec.verifier.drafting.protocol import Opening
from agentspec.verifier.engine.linears import pack_linears
from agentspec.verifier.text import Text

PROMPT = "Plan: I look up the weather, so I call the tool.\n"


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def other_text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    """A byte-level tokenizer that cuts text in another way than the tiny model's."""
    folder = tmp_path_factory.mktemp("other")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    bpe.train_from_iterator(["completely other text, with other words in it: 你好 grün"] * 4, trainer)
    PreTrainedTokenizerFast(tokenizer_object=bpe).save_pretrained(folder)
    return Text(str(folder))


@torch.inference_mode()
def greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(model(input_ids=torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def test_a_model_that_is_the_main_model_is_always_right(model: Any, text: Text, fit: Callable[..., Any]) -> None:
    prompt = text.encode(PROMPT)
    answer = greedy(model, prompt, 40)
    session = ModelDrafter(model).open(Opening("r", tuple(prompt)))
    got = fit(session, answer, 4)
    assert got.stood >= 40 - got.steps and got.wasted <= 4
    session.close()


def test_drafts_go_on_from_what_was_really_said(model: Any, text: Text) -> None:
    prompt = text.encode(PROMPT)
    rng = random.Random(1)
    session = ModelDrafter(model).open(Opening("r", tuple(prompt)))
    said: list[int] = []
    for _ in range(12):
        [draft] = session.propose(5)
        assert list(draft.tokens) == greedy(model, prompt + said, len(draft.tokens))
        new = [*draft.tokens[: rng.randrange(len(draft.tokens))], rng.randrange(3, 300)]
        session.extend(new)
        said += new


def test_a_long_prompt_is_run_in_parts_before_anything_is_drafted(model: Any, text: Text) -> None:
    prompt = text.encode(PROMPT) * 40
    assert 512 < len(prompt) < 1024
    session = ModelDrafter(model).open(Opening("r", tuple(prompt)))
    silent = 0
    while not (drafts := session.propose(2)):
        silent += 1
    assert silent == (len(prompt) - 1) // 256
    assert list(drafts[0].tokens) == greedy(model, prompt, len(drafts[0].tokens))


def test_its_cost_is_measured(model: Any, text: Text) -> None:
    drafter = ModelDrafter(model)
    assumed = drafter.cost_s_per_token
    session = drafter.open(Opening("r", tuple(text.encode(PROMPT))))
    for _ in range(5):
        session.propose(4)
        session.extend([5])
    assert 0 < drafter.cost_s_per_token != assumed


def test_a_model_with_another_vocabulary_drafts_by_text(text: Text, other_text: Text) -> None:
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=320, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, initializer_range=0.4, max_position_embeddings=512,
    )  # fmt: skip
    small = Qwen2ForCausalLM(config).eval()
    prompt = text.encode(PROMPT)
    drafter = ModelDrafter(small, lambda tokens: SameText(text, other_text, tokens))
    session = drafter.open(Opening("r", tuple(prompt)))
    proposed = 0
    for said in ("", "weather ", "weather in Paris: grün "):
        theirs = other_text.encode(PROMPT + said)
        coming = b"".join(map(other_text.piece, greedy(small, theirs, 6))).decode(errors="ignore")
        for draft in session.propose(6):
            spelled = b"".join(map(text.piece, draft.tokens)).decode(errors="ignore")
            assert spelled and coming.startswith(spelled)
            proposed += 1
        session.extend(text.encode("weather " if not said else "in Paris: grün "))
    assert proposed


def test_the_mirror_of_a_text_spells_it_however_it_grows(text: Text, other_text: Text) -> None:
    rng = random.Random(3)
    written = (PROMPT + "grün größer ñandú 你好 😀 été " + "x" * 400) * 4
    tokens = text.encode(written)
    mirror = SameText(text, other_text, tokens[:5])
    at = 5
    while at < len(tokens):
        step = rng.randrange(1, 90)
        mirror.extend(tokens[at : at + step])
        at += step
        spelled = b"".join(map(other_text.piece, mirror.tokens))
        whole = b"".join(map(text.piece, tokens[:at]))
        assert whole.decode(errors="ignore") == spelled.decode(errors="ignore")
    added = other_text.encode("and then some")
    assert b"".join(map(text.piece, mirror.translated(added))).decode() == "and then some"


def test_skipping_no_layer_is_the_model_itself_and_shares_its_weights(model: Any, text: Text) -> None:
    twin = without(model, [])
    rows = torch.tensor([text.encode(PROMPT)])
    with torch.inference_mode():
        torch.testing.assert_close(twin(input_ids=rows).logits, model(input_ids=rows).logits)
    ours = {id(parameter) for parameter in model.parameters()}
    assert all(id(parameter) in ours for parameter in twin.parameters())


def test_layers_of_a_model_as_the_engine_packs_it_are_shared_too(tiny_folder: Path, text: Text) -> None:
    plain: Any = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32).eval()
    rows = torch.tensor([text.encode(PROMPT)])
    with torch.inference_mode():
        want = without(plain, [0])(input_ids=rows).logits
        pack_linears(plain)
        plain.config._attn_implementation = "agentspec_paged"
        torch.testing.assert_close(without(plain, [0])(input_ids=rows).logits, want, atol=1e-4, rtol=1e-4)


def test_skipped_layers_are_left_out_and_the_model_stays_as_it_was(model: Any, text: Text) -> None:
    rows = torch.tensor([text.encode(PROMPT)])
    with torch.inference_mode():
        before = model(input_ids=rows).logits
        thin = without(model, [0])(input_ids=rows).logits
        states = model.model.embed_tokens(rows)
        position = model.model.rotary_emb(states, torch.arange(rows.shape[1])[None])
        mask = torch.full((rows.shape[1],) * 2, float("-inf")).triu(1)[None, None]
        got = model.model.layers[1](states, attention_mask=mask, position_embeddings=position)
        alone = model.lm_head(model.model.norm(got[0] if isinstance(got, tuple) else got))
        assert torch.equal(model(input_ids=rows).logits, before)
    torch.testing.assert_close(thin, alone, atol=1e-4, rtol=1e-4)


def test_self_drafts_go_on_without_the_skipped_layers(model: Any, text: Text) -> None:
    prompt = text.encode(PROMPT)
    drafter = layer_skip(model, [1])
    [draft] = drafter.open(Opening("r", tuple(prompt))).propose(4)
    assert draft.source == "layer_skip"
    assert list(draft.tokens) == greedy(without(model, [1]), prompt, len(draft.tokens))


@pytest.mark.parametrize("skipped", [[0, 1], [2], [-1]])
def test_layers_that_cannot_be_skipped_are_named(model: Any, skipped: list[int]) -> None:
    with pytest.raises(ConfigError, match="layers"):
        layer_skip(model, skipped)
