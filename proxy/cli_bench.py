"""The commands `agentspec bench ...`."""

from __future__ import annotations

import importlib.util
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentspec.config import Engine
from agentspec.errors import ConfigError

bench_app = typer.Typer(no_args_is_help=True, help="Benchmarks; --json prints machine-readable figures.")

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]


class Order(StrEnum):
    """How recorded trajectories follow each other."""

    FILE = "file"
    SHUFFLE = "shuffle"


def needs_mcp() -> None:
    """Say which package is missing.

    Raises:
        ConfigError: the extra `mcp` is not installed.
    """
    if importlib.util.find_spec("mcp_types") is None:
        raise ConfigError("the MCP gateway needs the package mcp: pip install 'agentspec-proxy[mcp]'")


@bench_app.command("replay")
def bench_replay(
    data: Annotated[list[Path], typer.Option(help="recorded trajectories: a file or a folder; may be repeated")],
    quick: Annotated[bool, typer.Option(help="a few tasks, within a minute")] = False,
    as_json: AsJson = False,
) -> None:
    """Recorded trajectories with their real tools, direct and through agentspec, paired and interleaved."""
    from agentspec.proxy.bench.figures import print_report
    from agentspec.proxy.bench.replay import run

    progress = Console(stderr=True, highlight=False)
    print_report(run(data, quick, progress=progress.print), as_json=as_json)


@bench_app.command("agent")
def bench_agent(  # noqa: PLR0913  (each is a flag)
    quick: Annotated[bool, typer.Option(help="the virtual grid and three corners, within a minute")] = False,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="recordings with tau2's tools; may be repeated (default: its ground truth)"),
    ] = None,
    tasks: Annotated[int | None, typer.Option(help="at most so many recorded tasks of each domain", min=1)] = None,
    accuracy: Annotated[float, typer.Option(help="of the probe that is declared, not run", min=0, max=1)] = 0.3,
    seed: Annotated[int, typer.Option(help="decides all that happens in virtual time")] = 1,
    corner_s: Annotated[float | None, typer.Option(help="seconds for each corner on real sockets", min=1)] = None,
    parallel: Annotated[int, typer.Option(help="recorded tasks played at the same time", min=1)] = 4,
    jobs: Annotated[int | None, typer.Option(help="processes for virtual time (default: one a core)", min=1)] = None,
    plots: Annotated[Path | None, typer.Option(help="folder for a picture of each part")] = None,
    endpoint: Annotated[str | None, typer.Option(help="a live endpoint to drive instead, with its /v1")] = None,
    model: Annotated[str | None, typer.Option(help="its model")] = None,
    kind: Annotated[Engine, typer.Option(help="its kind; decides what a probe is")] = Engine.OPENAI,
    as_json: AsJson = False,
) -> None:
    """Agents with agentspec against agents without: never slower, and how much faster?"""
    from agentspec.proxy.bench.agent.bench import Options, run
    from agentspec.proxy.bench.agent.live import Live
    from agentspec.proxy.bench.figures import print_report

    if (endpoint is None) is not (model is None):
        raise ConfigError("a live endpoint needs both --endpoint URL and --model NAME")
    live = Live(endpoint, model, kind) if endpoint is not None and model is not None else None

    progress = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    options = Options(quick, data or (), tasks, accuracy, seed, corner_s, parallel, jobs, plots, live)
    print_report(run(options, progress.print), as_json=as_json)


@bench_app.command("hits")
def bench_hits(  # noqa: PLR0913  (each is a flag)
    data: Annotated[list[Path], typer.Option(help="recorded trajectories: a file or a folder; may be repeated")],
    order: Annotated[Order, typer.Option(help="as recorded, or shuffled, always the same way")] = Order.FILE,
    quick: Annotated[bool, typer.Option(help="the first trajectories of each file, within a minute")] = False,
    ablation: Annotated[bool, typer.Option(help="also without each part of memory: as many passes more")] = False,
    jobs: Annotated[int | None, typer.Option(help="processes (default: one for each core)", min=1)] = None,
    plot: Annotated[Path | None, typer.Option(help="write growth and calibration as a picture")] = None,
    as_json: AsJson = False,
) -> None:
    """How often memory knows the next tool call, on recordings that it learns from one after another."""
    from agentspec.proxy.bench.figures import print_report
    from agentspec.proxy.bench.hits.bench import run
    from agentspec.proxy.bench.hits.subject import build

    told = Console(stderr=True, highlight=False) if sys.stderr.isatty() or not as_json else None
    shuffled = order is Order.SHUFFLE
    report = run(data, build, quick, shuffled=shuffled, ablation=ablation, jobs=jobs, plot_file=plot, console=told)
    print_report(report, as_json=as_json)


@bench_app.command("wire")
def bench_wire(
    quick: Annotated[bool, typer.Option(help="short windows, within a minute")] = False,
    litellm: Annotated[Path | None, typer.Option(help="python of an environment with litellm[proxy]")] = None,
    seconds: Annotated[float | None, typer.Option(help="length of a window", min=0.05)] = None,
    as_json: AsJson = False,
) -> None:
    """What agentspec adds on the wire: direct, speculation off and on, and LiteLLM where it is installed."""
    from agentspec.proxy.bench.figures import print_report
    from agentspec.proxy.bench.wire import run

    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    print_report(run(quick, litellm_python=litellm, seconds=seconds, progress=progress.print), as_json=as_json)


@bench_app.command("mcp")
def bench_mcp(
    quick: Annotated[bool, typer.Option(help="fewer calls, within a minute")] = False,
    as_json: AsJson = False,
) -> None:
    """Calls of an MCP client through the gateway: hits and misses, beside the same server directly."""
    needs_mcp()
    from agentspec.proxy.bench.figures import print_report
    from agentspec.proxy.bench.mcp import run

    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    print_report(run(quick, progress=progress.print), as_json=as_json)


@bench_app.command("sandbox")
def bench_sandbox(
    quick: Annotated[bool, typer.Option(help="300 discarded runs instead of 10,000")] = False,
    discards: Annotated[int | None, typer.Option(help="how many runs to discard", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """What each tier costs here, and whether discarded runs leave anything behind."""
    from agentspec.proxy.bench.figures import print_report
    from agentspec.proxy.bench.sandbox import run

    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    print_report(run(quick, progress.print, discards), as_json=as_json)


@bench_app.command("claims")
def bench_claims(
    quick: Annotated[bool, typer.Option(help="fewer operations, within a minute")] = False,
    operations: Annotated[int | None, typer.Option(help="how many steps to take", min=1)] = None,
    seed: Annotated[int, typer.Option(help="decides everything that happens")] = 1,
    as_json: AsJson = False,
) -> None:
    """Claims, writes, cancels and crashes in any order: is a result ever wrong? Exit code 1 if so."""
    from agentspec.proxy.bench.claims.bench import run
    from agentspec.proxy.bench.figures import print_report

    progress = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    report = run(quick, operations=operations, seed=seed, progress=progress.print)
    print_report(report, as_json=as_json)
    if report.value("wrong_results"):
        raise typer.Exit(1)


@bench_app.command("verifier")
def bench_verifier(  # noqa: PLR0913  (each is a flag)
    quick: Annotated[bool, typer.Option(help="one short prompt of each kind, about a minute")] = False,
    prompts: Annotated[int, typer.Option(help="real prompts of each kind", min=1)] = 15,
    model: Annotated[str, typer.Option(help="folder, hub's id or short name of a small model")] = "coder05",
    soak_s: Annotated[float, typer.Option(help="seconds of requests that come and are cancelled", min=0)] = 0.0,
    threads: Annotated[int | None, typer.Option(help="CPU threads for torch", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """The bundled engine: the same tokens with and without drafts, how much faster, what a fork costs."""
    from agentspec.proxy.bench.figures import print_report
    from agentspec.proxy.bench.verifier import run

    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    options = {"model": model, "quick": quick, "prompts": prompts, "soak_s": soak_s, "threads": threads}
    print_report(run(progress.print, **options), as_json=as_json)


@bench_app.command("traces")
def bench_traces(
    quick: Annotated[bool, typer.Option(help="fewer rounds, within a minute")] = False,
    postgres: Annotated[str | None, typer.Option(help="SQLAlchemy URL of a PostgreSQL server")] = None,
    as_json: AsJson = False,
) -> None:
    """What tracing costs a request, how fast a list of 10^6 spans opens, and whether a lost row is ever not counted."""
    from agentspec.proxy.bench.figures import print_report
    from agentspec.proxy.bench.traces import POSTGRES, run

    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    print_report(run(quick, postgres=postgres or POSTGRES, progress=progress.print), as_json=as_json)
