"""The bench of the engine measures what it says: on tiny models, and its statistics on dice whose odds are known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from agentspec.verifier.bench.forks import forks
from agentspec.verifier.bench.identity import FAMILIES, identity
from agentspec.verifier.bench.plain import Load, against_transformers
from agentspec.verifier.bench.rig import Rig
from agentspec.verifier.bench.sampling import p_value
from agentspec.verifier.bench.soak import soak
from agentspec.verifier.bench.tiny import config_of, random_model, write


def quiet(_: str) -> None: ...


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with random_model(config_of("qwen2")) as made:
        yield made


def test_every_family_says_the_same_with_any_drafter_in_any_mix() -> None:
    figures = {one.name: one.value for one in identity(2, quiet)}
    assert figures["identical"] == 1.0
    assert {"identical.ngram", "identical.suffix", "identical.external", "identical.garbage"} <= set(figures)
    assert len(FAMILIES) == 3


def test_a_fork_is_measured_against_its_prefix_and_copies_none_of_it(rig: Rig) -> None:
    figures = {one.name: one for one in forks(rig, 1, quiet, 48)}
    assert 0 < float(figures["fork_share"].value or 0) < 1
    assert float(figures["fork_blocks_per_probe"].value or 9) <= 1.0
    assert figures["probe_slowdown"].value is not None


def test_requests_that_come_and_go_leave_no_block(rig: Rig) -> None:
    figures = {one.name: one for one in soak(rig, 1.5, quiet)}
    assert figures["soak_blocks_left"].value == 0
    assert (figures["soak_grown_mib"].n or 0) > 0


def test_plain_decoding_is_compared_with_transformers(tmp_path_factory: pytest.TempPathFactory, rig: Rig) -> None:
    folder = tmp_path_factory.mktemp("tiny")
    write(config_of("qwen2"), folder)
    figures = {one.name: one.value for one in against_transformers(rig, str(folder), Load([[1, 2, 3]], 1, 8), quiet)}
    assert figures["vs_hf"] == min(float(figures["vs_hf.b1"] or 0), float(figures["vs_hf.b8"] or 0))


@pytest.mark.parametrize("loaded", [False, True])
def test_a_loaded_die_is_told_from_a_fair_one(loaded: bool) -> None:
    source = random.Random(4)
    odds = [2, 1, 1, 1, 1, 1] if loaded else [1] * 6
    draws = Counter(source.choices(range(6), odds, k=3000))
    p = p_value(draws, dict.fromkeys(range(6), 1 / 6), 3000)
    assert p < 1e-6 if loaded else p > 0.01


def test_what_cannot_happen_and_does_has_no_chance_at_all() -> None:
    assert p_value(Counter({"a": 99, "b": 1}), {"a": 1.0}, 100) == 0.0
