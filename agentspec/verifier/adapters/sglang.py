"""SGLang: started with its n-gram drafts, priorities and a cache report; drafts through its external corpus.

Written from the code and the documented interface of 0.5.23 and tested against exchanges written from them: it has not
been run. The corpus serves all requests alike, so a text in it is a draft for whoever comes to write it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentspec.config import Engine
from agentspec.errors import ConfigError
from agentspec.verifier.adapters.asking import Asking, found_in, health_of
from agentspec.verifier.adapters.bodies import continued, named
from agentspec.verifier.adapters.installed import installed, python_of
from agentspec.verifier.adapters.protocol import (
    Cancelling,
    Capabilities,
    Chat,
    Command,
    DraftCount,
    EngineRequest,
    Handover,
    Health,
    StartOptions,
)
from agentspec.verifier.weights import MODELS, resolve

_AFTER_THE_TURN = -10
"""Higher numbers go first."""
_CORPUS_BUDGET = 8
"""Tokens of a draft that may come from the corpus."""
_METRICS = ("sglang:cache_hit_rate", "sglang:spec_accept_length", "sglang:spec_accept_rate", "sglang:num_queue_reqs")


class SglangAdapter:
    """Implements `EngineAdapter`."""

    name = "sglang"
    engine = Engine.SGLANG
    request_header = None
    shares_drafts = True

    def command(self, options: StartOptions) -> Command:
        python = python_of(options.python)
        if "sglang" not in installed(python, ("sglang",)):
            raise ConfigError(
                f"SGLang is not installed for {python}: pip install 'sglang[all]' into an environment of its own"
                " (it needs CUDA) and name its python with --python (or AGENTSPEC_SGLANG_PYTHON)"
            )
        model = str(resolve(options.model)) if options.model in MODELS else options.model
        line = [python, "-m", "sglang.launch_server", "--model-path", model]
        line += ["--served-model-name", options.model.rstrip("/").rsplit("/", 1)[-1]]
        line += ["--host", options.host, "--port", str(options.port)]
        line += ["--enable-priority-scheduling", "--enable-cache-report", "--enable-metrics"]
        if "--tool-call-parser" not in options.more:
            line += ["--tool-call-parser", "qwen25"]
        if options.dtype != "auto":
            line += ["--dtype", options.dtype]
        if options.device != "auto":
            line += ["--device", options.device]
        if options.max_context is not None:
            line += ["--context-length", str(options.max_context)]
        return Command((*line, *_method(options), *options.more))

    def health(self, url: str) -> Health:
        return health_of(url)

    def capabilities(self, url: str, key: str = "") -> Capabilities:
        with Asking(url, key) as asking:
            model, longest = asking.model()
            told = asking.page("/server_info").json
            page = asking.metrics()
        no_cache, priority = told.get("disable_radix_cache"), told.get("enable_priority_scheduling")
        budget = told.get("speculative_ngram_external_sam_budget") or 0
        corpus = told.get("speculative_algorithm") == "NGRAM" and budget > 0
        return Capabilities(
            engine=self.engine,
            version=str(told.get("version", "")),
            model=model,
            max_context_tokens=longest,
            prefix_cache=None if no_cache is None else not no_cache,
            priority=None if priority is None else bool(priority),
            lower_first=bool(told.get("schedule_low_priority_values_first", False)),
            continue_final_message=True,
            handover=Handover.CORPUS if corpus else Handover.NONE,
            cancelling=Cancelling.BY_ID,
            usage_fields=("prompt_tokens_details.cached_tokens",),
            metrics=found_in(page, _METRICS),
        )

    def probe_body(self, chat: Chat, text: str, max_tokens: int) -> dict[str, Any]:
        return continued(chat, text, max_tokens, _AFTER_THE_TURN) | {"tool_choice": "none"}

    def cancel(self, request_id: str) -> EngineRequest | None:
        """It ends every request whose `rid` begins so; for the empty one that would be all."""
        return EngineRequest("POST", "/abort_request", {"rid": named(request_id)})

    def offer_drafts(self, request_id: str, texts: Sequence[str]) -> EngineRequest | None:
        return EngineRequest("POST", "/add_external_corpus", {"corpus_id": named(request_id), "documents": list(texts)})

    def withdraw_drafts(self, request_id: str) -> EngineRequest | None:
        return EngineRequest("POST", "/remove_external_corpus", {"corpus_id": named(request_id)})

    def used(self, usage: Mapping[str, Any]) -> DraftCount | None:
        """Its answers count no drafts."""
        return None

    def metered(self, page: str) -> DraftCount | None:
        """Its metrics tell how long drafts were on average, not how many tokens."""
        return None


def _method(options: StartOptions) -> list[str]:
    method = (options.speculate or "external").upper()
    if method == "OFF":
        return []
    corpus = ["--speculative-ngram-external-sam-budget", str(_CORPUS_BUDGET)] if method == "EXTERNAL" else []
    algorithm = "NGRAM" if method in ("EXTERNAL", "NGRAM") else method
    line = ["--speculative-algorithm", algorithm, "--speculative-num-draft-tokens", str(options.draft_tokens), *corpus]
    if options.draft_model is not None:
        line += ["--speculative-draft-model-path", options.draft_model]
    return line
