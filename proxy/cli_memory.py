"""The commands `agentspec memory ...`: what memory keeps, and making it forget."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentspec.config import load
from agentspec.errors import ConfigError

if TYPE_CHECKING:
    from agentspec.memory.store import MemoryStore

memory_app = typer.Typer(no_args_is_help=True, help="What memory has kept of past trajectories.")

console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)

Tenant = Annotated[str, typer.Option(help="whose; `agentspec memory show` lists them")]
Database = Annotated[str | None, typer.Option(help="SQLAlchemy URL of memory's database")]


@contextmanager
def _store(database: str | None) -> Iterator[MemoryStore]:
    """The store of the settings; a database that fails is one clear line."""
    from sqlalchemy.exc import SQLAlchemyError

    from agentspec.memory.store import MemoryStore

    url = database or load().memory_database
    if not url:
        raise ConfigError("setting memory_database: it is empty, so nothing is kept; name a database with --database")
    store = MemoryStore(url)
    try:
        yield store
    except SQLAlchemyError as error:
        raise ConfigError(f"setting memory_database: {str(error).splitlines()[0]}") from error
    finally:
        store.close()


@memory_app.command("show")
def memory_show(database: Database = None) -> None:
    """What is kept of whom."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tenant", overflow="fold")
    for name in ("trajectories", "scopes", "size", "oldest", "newest"):
        table.add_column(name, justify="right")
    with _store(database) as store:
        for tenant in store.tenants():
            found = store.stats(tenant)
            counts = str(found.trajectories), str(found.scopes), _size(found.size_bytes)
            table.add_row(Text(tenant), *counts, _moment(found.oldest_at), _moment(found.newest_at))
    console.print(table if table.row_count else "memory has kept nothing yet")


@memory_app.command("export")
def memory_export(
    tenant: Tenant,
    out: Annotated[Path | None, typer.Option(help="file to write; without it standard output")] = None,
    database: Database = None,
) -> None:
    """Write a tenant's trajectories as JSON Lines. They hold what its users said."""
    with _store(database) as store:
        if out is None:
            sys.stdout.buffer.writelines(store.export(tenant))
            return
        try:
            out.touch(mode=0o600, exist_ok=True)  # nobody else reads a new one
            with out.open("wb") as file:
                count = sum(1 for line in store.export(tenant) if file.write(line))
        except OSError as error:
            raise ConfigError(f"cannot write {out}: {error.strerror}") from error
    console.print(Text(f"{count} trajectories of tenant {tenant!r} are in {out}"))


@memory_app.command("import")
def memory_import(
    file: Annotated[Path, typer.Argument(help="JSON Lines as `agentspec memory export` writes them")],
    tenant: Tenant,
    database: Database = None,
) -> None:
    """Keep a file's trajectories: all of them, or none where a line is wrong. A longer version is kept."""
    with _store(database) as store:
        try:
            with file.open("rb") as lines:
                count = store.import_(tenant, lines)
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}") from error
        except ConfigError as error:
            raise ConfigError(f"{file}: {error}; nothing was imported") from error
    console.print(Text(f"{count} trajectories imported for tenant {tenant!r}"))


@memory_app.command("forget")
def memory_forget(
    tenant: Tenant,
    trajectory: Annotated[str | None, typer.Option(help="forget this trajectory")] = None,
    scope: Annotated[str | None, typer.Option(help="forget this end user's trajectories")] = None,
    everything: Annotated[bool, typer.Option("--all", help="forget all of the tenant's")] = False,
    database: Database = None,
) -> None:
    """Delete trajectories and what was learnt from them. A running proxy follows within 30 seconds."""
    if (trajectory is not None) + (scope is not None) + everything != 1:
        raise ConfigError("say what to forget: one of --trajectory ID, --scope SCOPE, --all")
    with _store(database) as store:
        if trajectory is not None:
            count = store.forget_trajectory(tenant, trajectory)
        elif scope is not None:
            count = store.forget_scope(tenant, scope)
        else:
            count = store.forget_tenant(tenant)
    console.print(Text(f"{count} trajectories of tenant {tenant!r} forgotten, and what was learnt from them"))


def _size(size_bytes: int) -> str:
    return f"{size_bytes} B" if size_bytes < 1024 else f"{size_bytes / 1024:,.1f} KiB"


def _moment(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
