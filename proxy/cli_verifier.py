"""The commands `agentspec verifier ...`: start an engine with what agentspec needs of it, and ask what one can do."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentspec.config import ENV_PREFIX
from agentspec.errors import UpstreamError
from agentspec.proxy.cli_bench import AsJson
from agentspec.verifier.adapters.protocol import Capabilities, Health, StartOptions
from agentspec.verifier.adapters.registry import adapter

verifier_app = typer.Typer(no_args_is_help=True, help="The token-level engine: bundled, vLLM or SGLang.")

console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


class EngineName(StrEnum):
    """The engines that can be started."""

    BUNDLED = "bundled"
    VLLM = "vllm"
    SGLANG = "sglang"


EngineOption = Annotated[EngineName, typer.Option(help="which engine")]
_METHODS = "off, ngram, suffix, external (posted drafts), draft_model, eagle3, …; default: the best installed"
Method = Annotated[str | None, typer.Option(help=f"how tokens are drafted: {_METHODS}")]
_VARIABLES = "AGENTSPEC_VLLM_PYTHON, AGENTSPEC_SGLANG_PYTHON"
Python = Annotated[str, typer.Option(help=f"the python of the engine's environment (or {_VARIABLES})")]


@verifier_app.command("start")
def verifier_start(  # noqa: PLR0913  (each is a flag)
    model: Annotated[str, typer.Option(help="folder, GGUF file, hub id, or coder05 | coder15 | smol135")] = "coder05",
    engine: EngineOption = EngineName.BUNDLED,
    speculate: Method = None,
    draft_model: Annotated[str | None, typer.Option(help="weights for methods that need some")] = None,
    draft_tokens: Annotated[int, typer.Option(help="most tokens of a draft", min=1)] = 16,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on")] = 8100,
    threads: Annotated[int | None, typer.Option(help="CPU threads")] = None,
    device: Annotated[str, typer.Option(help="auto | cpu | cuda")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto | float32 | bfloat16 | float16")] = "auto",
    max_context: Annotated[int | None, typer.Option(help="tokens of prompt and answer (default: the model's)")] = None,
    python: Python = "",
    show: Annotated[bool, typer.Option("--show", help="show the command and the environment instead")] = False,
    more: Annotated[list[str] | None, typer.Argument(help="passed on to the engine's own command, after --")] = None,
) -> None:
    """Start an engine in this terminal, with a prefix cache, priorities and drafts."""
    options = StartOptions(
        model=model,
        host=host,
        port=port,
        speculate=speculate,
        draft_model=draft_model,
        draft_tokens=draft_tokens,
        dtype=dtype,
        device=device,
        threads=threads,
        max_context=max_context,
        python=python or os.environ.get(f"{ENV_PREFIX}{engine.name}_PYTHON", ""),
        more=tuple(more or ()),
    )
    command = adapter(engine.value).command(options)
    if show:
        print(json.dumps({"command": command.line, "environment": dict(command.environment)}, indent=1))
        return
    os.execve(command.line[0], command.line, {**os.environ, **command.environment})


@verifier_app.command("check")
def verifier_check(
    url: Annotated[str, typer.Option(help="the engine's base URL, with or without /v1")],
    engine: EngineOption = EngineName.BUNDLED,
    key: Annotated[str, typer.Option(envvar=f"{ENV_PREFIX}UPSTREAM_KEY", help="its key, where it wants one")] = "",
    as_json: AsJson = False,
) -> None:
    """Whether an engine answers, and what it can do. Ends with 1 where it does not answer."""
    asked = adapter(engine.value)
    health, found = asked.health(url), None
    if health.up:
        try:
            found = asked.capabilities(url, key)
        except UpstreamError as error:
            health = Health(False, None, health.took_s, error.message)
    told = {
        "engine": engine.value,
        "url": url,
        "health": {"up": health.up, "status": health.status, "took_ms": health.took_s * 1e3, "why": health.why},
        "capabilities": found.as_dict() if found is not None else None,
    }
    if as_json:
        print(json.dumps(told, ensure_ascii=False))
    else:
        console.print(_table(health, found))
    raise typer.Exit(0 if health.up else 1)


def _table(health: Health, found: Capabilities | None) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    up = f"answers ({health.took_s * 1e3:.0f} ms)" if health.up else f"does not answer: {health.why}"
    rows: list[tuple[str, Any]] = [("health", up)]
    if found is not None:
        context = f"{found.max_context_tokens} tokens" if found.max_context_tokens else "not told"
        rows += [
            ("engine", f"{found.engine.value} {found.version}".strip()),
            ("model", found.model or "none"),
            ("context", context),
            ("prefix cache", _yes(found.prefix_cache)),
            ("priority", f"{_yes(found.priority)}; {'lower' if found.lower_first else 'higher'} numbers first"),
            ("continues messages", _yes(found.continue_final_message)),
            ("drafts", found.handover.value),
            ("cancel", found.cancelling.value),
            ("usage tells", ", ".join(found.usage_fields) or "nothing of drafts"),
            ("metrics tell", ", ".join(found.metrics) or "nothing of drafts"),
        ]
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _yes(told: bool | None) -> str:
    return "not told" if told is None else "yes" if told else "no"
