"""What all adapters have in common, and what each one's command line and bodies are."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentspec.config import Engine
from agentspec.errors import ConfigError
from agentspec.verifier.adapters import installed as installed_module
from agentspec.verifier.adapters import vllm as vllm_module
from agentspec.verifier.adapters.asking import root_of
from agentspec.verifier.adapters.protocol import DraftCount, StartOptions
from agentspec.verifier.adapters.registry import NAMES, adapter, adapter_of

CALL = '{"name": "get", "arguments": {"key": "A"}}'
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{}], "tool_choice": "required", "n": 1}


@pytest.fixture
def has(monkeypatch: pytest.MonkeyPatch) -> Any:
    """has(vllm="1", …): what the engine's environment holds."""

    def made(**modules: str) -> None:
        for module in ("vllm", "sglang"):
            path = f"agentspec.verifier.adapters.{module}.installed"
            monkeypatch.setattr(path, lambda python, names: {n: modules[n] for n in names if n in modules})

    return made


def line_of(name: str, **options: Any) -> list[str]:
    return list(adapter(name).command(StartOptions("some/model", **options)).line)


def flag(line: list[str], name: str) -> str:
    return line[line.index(name) + 1]


def test_each_kind_of_endpoint_of_ones_own_has_one_adapter() -> None:
    found = {engine: adapter_of(engine) for engine in Engine}
    assert {engine: own.name for engine, own in found.items() if own is not None} == {
        Engine.AGENTSPEC: "bundled",
        Engine.VLLM: "vllm",
        Engine.SGLANG: "sglang",
    }
    assert all(adapter(name).engine is not None for name in NAMES)


def test_an_unknown_engine_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no engine 'tgi'; known: bundled, vllm, sglang"):
        adapter("tgi")


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_continues_the_turn_behind_it_in_line(name: str) -> None:
    body = adapter(name).probe_body(CHAT, 'so far {"name": "', 24)
    assert body["messages"] == [*CHAT["messages"], {"role": "assistant", "content": 'so far {"name": "'}]
    told = (body["continue_final_message"], body["add_generation_prompt"], body["max_tokens"], body["logprobs"])
    assert told == (True, False, 24, True)
    assert (body["priority"] > 0) is (name != "sglang")
    assert body["tool_choice"] == ("required" if name == "bundled" else "none")
    assert "tool_choice" in CHAT and len(CHAT["messages"]) == 1, "the turn's own body is not touched"


@pytest.mark.parametrize("name", NAMES)
def test_a_request_without_an_id_is_neither_cancelled_nor_offered_anything(name: str) -> None:
    """SGLang would end all requests."""
    own = adapter(name)
    for ask in (own.cancel, lambda identity: own.offer_drafts(identity, ["x"])):
        with pytest.raises(ValueError, match="without an id"):
            ask("")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shared_is_taken_back(name: str) -> None:
    own = adapter(name)
    assert (own.withdraw_drafts("x") is not None) is own.shares_drafts
    assert (own.request_header is None) is own.shares_drafts, "what serves one request needs its id"


def test_cancelling_names_the_request_as_the_engine_does() -> None:
    asked = {name: adapter(name).cancel("r1") for name in NAMES}
    assert {name: (one.path, one.body) for name, one in asked.items() if one is not None} == {
        "bundled": ("/v1/cancel", {"request_id": "r1"}),
        "vllm": ("/inference/v1/abort_requests", {"request_ids": ["chatcmpl-r1"]}),
        "sglang": ("/abort_request", {"rid": "r1"}),
    }


def test_vllm_is_offered_a_call_in_both_of_its_spellings() -> None:
    asked = adapter("vllm").offer_drafts("r1", [CALL, '{"name": "ge'])
    assert asked is not None
    required = '[{"name": "get", "parameters": {"key": "A"}}]'
    assert asked.body["drafts"] == [CALL, required, '{"name": "ge']


def test_the_bundled_engine_is_started_as_a_module() -> None:
    line = line_of("bundled", port=81, threads=2, max_context=99, more=("--max-batch", "4"))
    assert line[:3] == [sys.executable, "-m", "agentspec.verifier"]
    told = (flag(line, "--model"), flag(line, "--port"), flag(line, "--threads"), flag(line, "--max-context"))
    assert told == ("some/model", "81", "2", "99")
    assert line[-2:] == ["--max-batch", "4"]
    assert not {"--speculate", "--draft-model"} & set(line)
    line = line_of("bundled", speculate="ngram,external", draft_model="small")
    assert (flag(line, "--speculate"), flag(line, "--draft-model")) == ("ngram,external", "small")


def test_vllm_drafts_by_suffix_where_that_is_installed_and_else_by_ngram(has: Any) -> None:
    has(vllm="0.32.0", arctic_inference="0.3.0")
    line = line_of("vllm", draft_tokens=9)
    assert json.loads(flag(line, "--speculative-config")) == {"method": "suffix", "num_speculative_tokens": 9}
    for wanted in ("--enable-prefix-caching", "--enable-scale-out", "--enable-prompt-tokens-details"):
        assert wanted in line
    assert flag(line, "--scheduling-policy") == "priority"
    assert not {"--enforce-eager", "--dtype", "--middleware"} & set(line)
    has(vllm="0.32.0")
    assert json.loads(flag(line_of("vllm"), "--speculative-config"))["method"] == "ngram"
    with pytest.raises(ConfigError, match="pip install arctic-inference"):
        line_of("vllm", speculate="suffix")
    assert "--speculative-config" not in line_of("vllm", speculate="off")
    config = json.loads(flag(line_of("vllm", speculate="eagle3", draft_model="a/b"), "--speculative-config"))
    assert (config["method"], config["model"]) == ("eagle3", "a/b")


def test_vllm_on_a_cpu_is_started_for_one(has: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    has(vllm="0.32.0+cpu")
    command = adapter("vllm").command(StartOptions("some/model", threads=2))
    assert flag(list(command.line), "--dtype") == "float32"
    assert {"--enforce-eager", "--block-size"} <= set(command.line)
    assert command.environment["OMP_NUM_THREADS"] == "2"
    assert "VLLM_CPU_KVCACHE_SPACE" not in command.environment, "what the operator set stays"


def test_vllm_takes_posted_drafts_through_a_module_that_has_nothing_else_of_ours(has: Any) -> None:
    has(vllm="0.32.0")
    command = adapter("vllm").command(StartOptions("some/model", speculate="external"))
    config = json.loads(flag(list(command.line), "--speculative-config"))
    assert (config["method"], config["model"]) == ("custom_class", "agentspec_drafts.PostedDrafts")
    assert flag(list(command.line), "--middleware") == "agentspec_drafts.DraftsDoor"
    folder = Path(command.environment["PYTHONPATH"].split(":")[0])
    assert [path.name for path in folder.glob("*.py")] == ["agentspec_drafts.py"]
    socket = Path(command.environment["AGENTSPEC_DRAFTS_SOCKET"])
    assert socket.parent.stat().st_mode & 0o077 == 0
    socket.parent.rmdir()
    tree = ast.parse((folder / "agentspec_drafts.py").read_text())
    modules = {n.names[0].name if isinstance(n, ast.Import) else n.module for n in tree.body
               if isinstance(n, ast.Import | ast.ImportFrom)}  # fmt: skip
    assert {str(module).split(".")[0] for module in modules} <= set(sys.stdlib_module_names)


def test_sglang_is_started_with_a_corpus_for_drafts(has: Any) -> None:
    has(sglang="0.5.23")
    line = line_of("sglang")
    assert (flag(line, "--speculative-algorithm"), flag(line, "--speculative-num-draft-tokens")) == ("NGRAM", "16")
    assert flag(line, "--speculative-ngram-external-sam-budget") == "8"
    assert {"--enable-priority-scheduling", "--enable-cache-report", "--enable-metrics"} <= set(line)
    assert "--speculative-ngram-external-sam-budget" not in line_of("sglang", speculate="ngram")
    assert flag(line_of("sglang", speculate="eagle3", draft_model="d"), "--speculative-draft-model-path") == "d"
    assert "--speculative-algorithm" not in line_of("sglang", speculate="off")


@pytest.mark.parametrize(("name", "what"), [("vllm", "pip install vllm"), ("sglang", "pip install 'sglang")])
def test_an_engine_that_is_not_there_says_what_to_install(has: Any, name: str, what: str) -> None:
    has()
    with pytest.raises(ConfigError, match=what):
        line_of(name)


def test_another_environment_is_looked_into_without_importing_anything() -> None:
    found = installed_module.installed(installed_module.python_of(""), ["pytest", "no_such_module"])
    assert found == {"pytest": pytest.__version__}
    with pytest.raises(ConfigError, match="--python"):
        installed_module.python_of("/no/such/python")


def test_tokens_are_counted_where_the_engine_counts_them() -> None:
    usage = {"completion_tokens_details": {"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 2}}
    assert adapter("bundled").used(usage) == DraftCount(7, 5)
    assert adapter("bundled").used({"completion_tokens": 3}) is None
    assert adapter("vllm").used(usage) is None
    page = 'vllm:spec_decode_num_draft_tokens_total{a="b"} 32.0\nvllm:spec_decode_num_accepted_tokens_total 8.0\n'
    for name in ("bundled", "vllm"):
        counted = adapter(name).metered(page)
        assert counted == DraftCount(32, 8)
        assert counted.since(DraftCount(30, 8)) == DraftCount(2, 0)
        assert adapter(name).metered("") is None


def test_short_names_of_models_are_folders_for_other_engines(has: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_module, "resolve", lambda model: Path("/models") / model)
    has(vllm="0.32.0")
    line = adapter("vllm").command(StartOptions("coder05")).line
    assert "/models/coder05" in line
    assert flag(list(line), "--served-model-name") == "coder05"


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_a_root_is_found_from_either_url(url: str) -> None:
    assert root_of(url) == "http://h:1"
