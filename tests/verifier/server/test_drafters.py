"""Which drafters a server has, by its settings, and that they draft."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentspec.errors import ConfigError
from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.drafting.external import ExternalDrafter
from agentspec.verifier.engine.forward import Runner
from agentspec.verifier.server.drafters import drafters_for
from agentspec.verifier.server.runs import whole
from agentspec.verifier.server.service import Service
from agentspec.verifier.text import Text


def names(folder: Path, runner: Runner, text: Text, **settings: str) -> list[str]:
    config = VerifierConfig(model=str(folder), **settings)  # type: ignore[arg-type]
    return [drafter.name for drafter in drafters_for(config, text, ExternalDrafter(text), runner)]


def test_what_needs_no_weights_drafts_unless_it_is_switched_off(tiny_folder: Path, runner: Runner, text: Text) -> None:
    assert names(tiny_folder, runner, text) == ["external", "ngram", "suffix"]
    assert names(tiny_folder, runner, text, speculate="off") == []
    assert names(tiny_folder, runner, text, speculate="ngram, layer_skip") == ["ngram", "layer_skip"]
    with_model = names(tiny_folder, runner, text, draft_model=str(tiny_folder))
    assert with_model == ["external", "ngram", "suffix", "model"]


@pytest.mark.parametrize("wanted", ["magic", "draft_model"])
def test_what_cannot_draft_is_said(tiny_folder: Path, runner: Runner, text: Text, wanted: str) -> None:
    with pytest.raises(ConfigError, match=wanted):
        names(tiny_folder, runner, text, speculate=wanted)


@pytest.mark.parametrize("kind", ["layer_skip", "draft_model"])
def test_a_model_that_drafts_changes_no_answer(tiny_folder: Path, kind: str) -> None:
    body = {"messages": [{"role": "user", "content": "hello there"}], "temperature": 0, "max_tokens": 24}
    plain = VerifierConfig(model=str(tiny_folder), speculate="off")
    drafted = VerifierConfig(model=str(tiny_folder), speculate=kind, draft_model=str(tiny_folder))
    assert said(drafted, body) == said(plain, body)


def said(config: VerifierConfig, body: dict[str, object]) -> str:
    service = Service(config)

    async def answer() -> str:
        return str((await whole(service.chat(body)))["choices"][0]["message"]["content"])

    try:
        return asyncio.run(answer())
    finally:
        service.close()
