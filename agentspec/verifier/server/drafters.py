"""Which drafters a server has, from its settings."""

from __future__ import annotations

from functools import partial

from agentspec.errors import ConfigError
from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.drafting.external import ExternalDrafter
from agentspec.verifier.drafting.layer_skip import layer_skip
from agentspec.verifier.drafting.mirror import SameText, SameTokens
from agentspec.verifier.drafting.model import Mirrors, ModelDrafter
from agentspec.verifier.drafting.ngram import NgramDrafter
from agentspec.verifier.drafting.protocol import Drafter
from agentspec.verifier.drafting.suffix import SuffixDrafter
from agentspec.verifier.engine.forward import Runner
from agentspec.verifier.text import Text
from agentspec.verifier.weights import resolve

_AUTO = ("external", "ngram", "suffix")
_NAMES = (*_AUTO, "draft_model", "layer_skip")


def drafters_for(config: VerifierConfig, text: Text, external: ExternalDrafter, runner: Runner) -> tuple[Drafter, ...]:
    """Make them.

    Args:
        external: the drafter of texts that come with requests and by `/v1/drafts`.
        runner: the main model's.

    Raises:
        ConfigError: a name is unknown, or a draft model is missing.
    """
    wanted = _wanted(config)
    made: list[Drafter] = []
    if "external" in wanted:
        made.append(external)
    if "ngram" in wanted:
        made.append(NgramDrafter())
    if "suffix" in wanted:
        made.append(SuffixDrafter(text))
    if "draft_model" in wanted:
        made.append(_model(config, text, runner))
    if "layer_skip" in wanted:
        layers = runner.kv_shape.layers
        made.append(layer_skip(runner.model, range(layers // 4, layers - layers // 4, 2)))
    return tuple(made)


def _wanted(config: VerifierConfig) -> tuple[str, ...]:
    if config.speculate == "off":
        return ()
    if config.speculate == "auto":
        return (*_AUTO, "draft_model") if config.draft_model is not None else _AUTO
    names = tuple(name.strip() for name in config.speculate.split(","))
    unknown = [name for name in names if name not in _NAMES]
    if unknown:
        known = ", ".join(_NAMES)
        raise ConfigError(f"--speculate {', '.join(unknown)}: unknown; use auto, off, or some of {known}")
    return names


def _model(config: VerifierConfig, text: Text, runner: Runner) -> ModelDrafter:
    if config.draft_model is None:
        raise ConfigError("--speculate draft_model needs --draft-model")
    folder = str(resolve(config.draft_model, config.cache_dir, None))
    theirs = Text(folder)
    mirrors: Mirrors = SameTokens
    if theirs.tokenizer.get_vocab() != text.tokenizer.get_vocab():
        mirrors = partial(SameText, text, theirs)
    return ModelDrafter.load(folder, mirrors, dtype=runner.dtype, device=str(runner.device))
