"""vLLM: started with a prefix cache, priorities and a method of speculation; drafts through a proposer of ours.

Flags, bodies and metrics as of 0.32. `suffix` drafts from what the engine has generated, so a probe's tokens are drafts
for its turn without being sent; it does so for all requests alike. `external` takes posted drafts, each for one
request.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentspec.calls import parse_arguments
from agentspec.config import Engine
from agentspec.errors import ConfigError
from agentspec.verifier.adapters.asking import Asking, found_in, health_of
from agentspec.verifier.adapters.bodies import COUNTERS, continued, metered, named
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

EXTERNAL = "external"
IN_VLLM = Path(__file__).parent / "in_vllm"
"""The folder of the one module that runs in vLLM's own processes: its environment has nothing else of ours."""

_AFTER_THE_TURN = 10
_MODULES = ("vllm", "arctic_inference")


class VllmAdapter:
    """Implements `EngineAdapter`."""

    name = "vllm"
    engine = Engine.VLLM
    request_header = b"x-request-id"
    shares_drafts = False

    def command(self, options: StartOptions) -> Command:
        python = python_of(options.python)
        there = installed(python, _MODULES)
        if "vllm" not in there:
            raise ConfigError(
                f"vLLM is not installed for {python}: pip install vllm into an environment of its own and name its"
                " python with --python (or AGENTSPEC_VLLM_PYTHON)"
            )
        on_cpu = options.device == "cpu" or (options.device == "auto" and there["vllm"].endswith("+cpu"))
        method = _method(options, there)
        line = [python, "-m", "vllm.entrypoints.cli.main", "serve", _folder(options.model)]
        line += ["--served-model-name", options.model.rstrip("/").rsplit("/", 1)[-1]]
        line += ["--host", options.host, "--port", str(options.port)]
        line += ["--enable-prefix-caching", "--scheduling-policy", "priority", "--enable-prompt-tokens-details"]
        line += ["--enable-scale-out", "--enable-auto-tool-choice"]
        if "--tool-call-parser" not in options.more:
            line += ["--tool-call-parser", "hermes"]
        if on_cpu:
            line += ["--enforce-eager", "--block-size", "32"]
        if on_cpu or options.dtype != "auto":
            line += ["--dtype", "float32" if options.dtype == "auto" else options.dtype]
        if options.max_context is not None:
            line += ["--max-model-len", str(options.max_context)]
        environment = _environment(options, on_cpu)
        if method is not None:
            line += ["--speculative-config", json.dumps(method)]
        if options.speculate == EXTERNAL:
            line += ["--middleware", "agentspec_drafts.DraftsDoor"]
            environment |= _way_in()
        return Command((*line, *options.more), environment)

    def health(self, url: str) -> Health:
        return health_of(url)

    def capabilities(self, url: str, key: str = "") -> Capabilities:
        with Asking(url, key) as asking:
            model, longest = asking.model()
            page = asking.metrics()
            version = str(asking.page("/version").json.get("version", ""))
            posted = bool(asking.page("/v1/drafts").json)
        return Capabilities(
            engine=self.engine,
            version=version,
            model=model,
            max_context_tokens=longest,
            prefix_cache=_prefix_cache(page),
            priority=None,
            lower_first=True,
            continue_final_message=True,
            handover=Handover.POSTED if posted else Handover.OWN if metered(page) else Handover.NONE,
            cancelling=Cancelling.BY_ID,
            usage_fields=("prompt_tokens_details.cached_tokens",),
            metrics=found_in(page, COUNTERS),
        )

    def probe_body(self, chat: Chat, text: str, max_tokens: int) -> dict[str, Any]:
        """With tools in play vLLM would wrap the answer into a call: `tool_choice` is none."""
        return continued(chat, text, max_tokens, _AFTER_THE_TURN) | {"tool_choice": "none"}

    def cancel(self, request_id: str) -> EngineRequest | None:
        """Needs `--enable-scale-out`. The engine's own id has a prefix."""
        return EngineRequest("POST", "/inference/v1/abort_requests", {"request_ids": [f"chatcmpl-{named(request_id)}"]})

    def offer_drafts(self, request_id: str, texts: Sequence[str]) -> EngineRequest | None:
        drafts = [spelled for text in texts for spelled in _spellings(text)]
        return EngineRequest("POST", "/v1/drafts", {"request_id": named(request_id), "drafts": drafts})

    def withdraw_drafts(self, request_id: str) -> EngineRequest | None:
        return None

    def used(self, usage: Mapping[str, Any]) -> DraftCount | None:
        """Its answers count no drafts; only its metrics do, for all requests together."""
        return None

    def metered(self, page: str) -> DraftCount | None:
        return metered(page)


def _folder(model: str) -> str:
    return str(resolve(model)) if model in MODELS else model


def _method(options: StartOptions, there: Mapping[str, str]) -> dict[str, Any] | None:
    """vLLM's own words for the method; None: nothing is drafted."""
    arctic = "arctic_inference" in there
    method = options.speculate or ("suffix" if arctic else "ngram")
    if method == "off":
        return None
    if method == "suffix" and not arctic:
        raise ConfigError("--speculate suffix needs arctic-inference beside vLLM: pip install arctic-inference")
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": options.draft_tokens}
    if method == "ngram":
        config |= {"prompt_lookup_max": 5, "prompt_lookup_min": 3}
    elif method == EXTERNAL:
        config |= {"method": "custom_class", "model": "agentspec_drafts.PostedDrafts"}
    if options.draft_model is not None:
        config["model"] = options.draft_model
    return config


def _environment(options: StartOptions, on_cpu: bool) -> dict[str, str]:
    """What it needs beside what is set: nothing that the operator has set is changed."""
    wanted = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if options.threads is not None:
        wanted["OMP_NUM_THREADS"] = str(options.threads)
    if on_cpu:
        wanted |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return {name: value for name, value in wanted.items() if name not in os.environ}


def _way_in() -> dict[str, str]:
    """Where vLLM finds our module, and the socket between its two processes: in a folder that only we may enter."""
    beside = os.environ.get("PYTHONPATH")
    folders = [str(IN_VLLM), *([beside] if beside else [])]
    socket = Path(tempfile.mkdtemp(prefix="agentspec-")) / "drafts.sock"
    return {"PYTHONPATH": os.pathsep.join(folders), "AGENTSPEC_DRAFTS_SOCKET": str(socket)}


def _prefix_cache(page: str) -> bool | None:
    config = next((line for line in page.splitlines() if line.startswith("vllm:cache_config_info{")), "")
    told = config.partition('enable_prefix_caching="')[2].partition('"')[0]
    return {"True": True, "False": False}.get(told)


def _spellings(text: str) -> list[str]:
    """A call as models write it, and as vLLM has them write it where calls are `required`."""
    call = parse_arguments(text)
    if call is None or not isinstance(call.get("name"), str) or not isinstance(call.get("arguments"), dict):
        return [text]
    return [text, json.dumps([{"name": call["name"], "parameters": call["arguments"]}], ensure_ascii=False)]
