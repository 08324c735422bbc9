"""The command `agentspec`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentspec import __version__
from agentspec.config import ENV_PREFIX, Engine, Settings, load, sources
from agentspec.errors import ConfigError
from agentspec.proxy.cli_bench import AsJson, bench_app, needs_mcp
from agentspec.proxy.cli_memory import memory_app
from agentspec.proxy.cli_savings import savings_command
from agentspec.proxy.cli_traces import add_trace_commands
from agentspec.proxy.cli_verifier import verifier_app

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Makes tool-using agents faster, the same otherwise."
)
config_app = typer.Typer(no_args_is_help=True, help="Look at the settings.")
models_app = typer.Typer(no_args_is_help=True, help="Weights of small models for the bundled verifier.")
keys_app = typer.Typer(no_args_is_help=True, help="Keys that agents must show.")
app.add_typer(config_app, name="config")
app.add_typer(keys_app, name="keys")
app.add_typer(models_app, name="models")
app.add_typer(bench_app, name="bench")
app.add_typer(memory_app, name="memory")
app.add_typer(verifier_app, name="verifier")
app.command("savings")(savings_command)
add_trace_commands(app)

console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)

ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file (default: agentspec.toml, if there)")]
Database = Annotated[str | None, typer.Option(help="SQLAlchemy URL of the ledger")]


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"agentspec {__version__}")
        raise typer.Exit


@app.callback()
def _agentspec(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="show it")] = False,
) -> None:
    """Makes tool-using agents faster, the same otherwise."""


@app.command()
def serve(  # noqa: PLR0913  (each is a flag)
    upstream: Annotated[str | None, typer.Option(help="base URL of the model endpoint, with its /v1")] = None,
    engine: Annotated[Engine | None, typer.Option(help="kind of endpoint; decides what a probe is")] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on; 0: any free one")] = None,
    database: Database = None,
    speculation: Annotated[bool | None, typer.Option(help="off: relay and trace only")] = None,
    probe: Annotated[bool | None, typer.Option(help="predict by forked probes")] = None,
    probe_money_cap_usd: Annotated[
        float | None, typer.Option(help="hosted endpoints: a day's money for probes")
    ] = None,
    memory: Annotated[bool | None, typer.Option(help="predict from what happened before, and learn")] = None,
    memory_database: Annotated[
        str | None, typer.Option(help="SQLAlchemy URL of memory; empty: nothing is kept on disk")
    ] = None,
    holdout_share: Annotated[
        float | None, typer.Option(help="share of trajectories without speculation, to measure what it saves")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="processes; only 1 for now")] = None,
    config: ConfigFile = None,
) -> None:
    """Serve the proxy between agents and their model endpoints (several: [[upstreams]] in the file)."""
    from agentspec.proxy.server import serve as serve_proxy

    flags = {k: v for k, v in locals().items() if k in Settings.model_fields}
    serve_proxy(load(flags, config))


@config_app.command("show")
def config_show(config: ConfigFile = None) -> None:
    """Every setting: its value, where it comes from, what it does."""
    from agentspec.memory.databases import without_password

    settings, origin = load({}, config), sources({}, config)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("setting", "value", "from", "meaning"):
        table.add_column(name, overflow="fold")
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        shown = "" if value is None else without_password(value) if name.endswith("database") else str(value)
        table.add_row(name, Text(shown), origin[name], field.description or "")
    console.print(table)
    console.print(f"\nflags over environment ({ENV_PREFIX}NAME) over file (agentspec.toml) over default", style="dim")


@keys_app.command("new")
def keys_new(
    tenant: Annotated[str, typer.Argument(help="whose key; tenants never see the runs and conversations of others")],
) -> None:
    """Make a key. It is shown once; the file keeps its hash."""
    from agentspec.proxy.doors import hash_of, new_key

    key = new_key()
    print(f"key, for the agents as their API key (it is shown only now): {key}")
    print("\nfor agentspec.toml:\n")
    print(f'[[keys]]\ntenant = {json.dumps(tenant)}\nsha256 = "{hash_of(key).hex()}"')


@app.command()
@app.command()
def mcp(
    config: Annotated[Path, typer.Option(help='JSON file of servers: {"mcpServers": {...}}')],
    proxy: Annotated[str, typer.Option(help="the proxy's address")] = "http://127.0.0.1:8787",
    http: Annotated[str | None, typer.Option(help="HOST:PORT to serve over HTTP instead of standard input")] = None,
    redis: Annotated[str | None, typer.Option(help="redis://HOST:PORT/DB, where writes are shared")] = None,
) -> None:
    """Front MCP servers for an agent, and run their reading tools ahead (needs the extra `mcp`)."""
    needs_mcp()
    from agentspec.proxy.mcp.run import Options
    from agentspec.proxy.mcp.run import serve as serve_mcp

    serve_mcp(Options(config, proxy, http, redis))


@app.command()
def worker(
    tools: Annotated[list[str], typer.Argument(help="modules that declare the tools")],
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0: any free one")] = 8790,
) -> None:
    """Run declared tools for agents on other machines (tier T3). Its key is in AGENTSPEC_WORKER_KEY."""
    from agentspec.tools_sandbox.worker import run_worker

    sys.path.insert(0, "")
    run_worker(tools, host, port)


@app.command()
def doctor(database: Database = None, as_json: AsJson = False) -> None:
    """What this machine can do for isolation, what is missing, and what to do about it."""
    from agentspec.proxy.doctor import as_dict, as_table, examine

    found = examine(load({"database": database}).database)
    if as_json:
        print(json.dumps(as_dict(found), ensure_ascii=False))
    else:
        console.print(as_table(found))


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(help="recorded trajectories (gzip JSON Lines)")],
    port: Annotated[int, typer.Option(help="port to listen on; 0: any free one")] = 0,
    tokens_per_s: Annotated[float, typer.Option(help="pace of the recorded model")] = 200.0,
    ttft_ms: Annotated[float, typer.Option(help="time to its first token")] = 200.0,
) -> None:
    """Serve recorded trajectories as an OpenAI-compatible endpoint, so that runs repeat exactly."""
    from agentspec.proxy.replay.endpoint import Pace
    from agentspec.proxy.replay.serve import serve_recorded

    serve_recorded(*files, port=port, pace=Pace(tokens_per_s, ttft_ms))


@app.command()
def demo(
    model: Annotated[str, typer.Option(help="folder, Hugging Face id, or coder05 | coder15")] = "coder05",
    questions: Annotated[int | None, typer.Option(help="how many to ask (default: all)")] = None,
    repeats: Annotated[int, typer.Option(help="how often to ask each")] = 1,
    keep: Annotated[bool, typer.Option(help="leave engine and proxy running")] = False,
    as_json: AsJson = False,
) -> None:
    """The main job on real input: an agent on a small real model, serially and through agentspec."""
    from agentspec.proxy.demo.run import DemoOptions, run_demo
    from agentspec.proxy.demo.services import ServiceFailed
    from agentspec.proxy.demo.show import show

    try:
        report = run_demo(DemoOptions(model, questions, repeats, keep))
    except ServiceFailed as error:
        raise ConfigError(str(error)) from error
    raise typer.Exit(show(report, as_json=as_json))


@models_app.command("fetch")
def models_fetch(names: Annotated[list[str], typer.Argument(help="coder05 | coder15 | smol135")]) -> None:
    """Download weights into the cache and check their sums."""
    from agentspec.verifier.weights import fetch

    fetch(names)


def main() -> NoReturn:
    """Entry point: errors of ours are one clear line, not a traceback."""
    try:
        code = app(standalone_mode=False)  # what a command's `typer.Exit` says comes back
    except ConfigError as error:
        _fail(str(error), 2)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        show: Any = getattr(error, "show", None)  # click's own usage errors
        if show is None:
            raise
        show()
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"agentspec: {message}", style="red", markup=False)
    sys.exit(code)
