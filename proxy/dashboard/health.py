"""Whether all is well: the database, memory, runtimes, what was dropped, what failed, versions."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from agentspec import clock
from agentspec.config import Settings
from agentspec.errors import ConfigError
from agentspec.memory.databases import without_password
from agentspec.memory.keeper import Keeper
from agentspec.memory.ledger import SqlLedger
from agentspec.proxy.dashboard.books import LedgerSource
from agentspec.proxy.dashboard.entrance import Viewer
from agentspec.proxy.desk import Desk
from agentspec.proxy.runtimes import Runtimes

_PARTS = ("agentspec-proxy", "sqlalchemy", "uvicorn", "httptools", "starlette")


@dataclass(frozen=True, slots=True)
class Health:
    """Reports on one proxy. What is not the viewer's own is told to the operator only."""

    settings: Settings
    source: LedgerSource
    desk: Desk
    runtimes: Runtimes
    began_s: float = field(default_factory=clock.monotonic)

    @property
    def version(self) -> str:
        """Ours; "" in a checkout that was never installed."""
        return _version("agentspec-proxy")

    def report(self, viewer: Viewer) -> dict[str, Any]:
        """All of it. May block."""
        return {
            "up_s": clock.monotonic() - self.began_s,
            "database": self._database(viewer),
            "memory": self._memory(viewer),
            "runtimes": self._runtimes(viewer),
            "faults": dict(self.desk.books.faults),
            "refused": dict(self.desk.judge.brakes.counts()["refused"]),
            "speculation": self.settings.speculation,
            "endpoints": self._endpoints() if viewer.sees_all else [],
            "versions": {**{name: _version(name) for name in _PARTS}, "python": platform.python_version()},
        }

    def _database(self, viewer: Viewer) -> dict[str, Any]:
        ledger = self.source.ledger
        counts = {}
        if isinstance(ledger, SqlLedger):
            counts = {"written": ledger.written, "waiting": ledger.waiting, "dropped": ledger.dropped}
        asked_at = time.perf_counter()
        try:
            engine = self.source.open().reader.engine
            with engine.connect() as connection:
                connection.execute(sa.select(1))
            state: dict[str, Any] = {"ok": True, "kind": engine.dialect.name, "size_bytes": _size(engine)}
        except (SQLAlchemyError, ConfigError) as error:
            state = {"ok": False, "error": str(error).splitlines()[0] if viewer.sees_all else "it does not answer"}
        shown = {"url": without_password(self.source.url)} if viewer.sees_all else {}
        return {**state, **shown, **counts, "answers_in_s": time.perf_counter() - asked_at}

    def _memory(self, viewer: Viewer) -> dict[str, Any]:
        learner = self.desk.learner
        if learner is None:
            return {"on": False}
        memories = learner.memories
        found: dict[str, Any] = {"on": True, **learner.counts()}
        if isinstance(memories, Keeper):
            found |= {"kept": memories.store is not None, "unkept": memories.unkept, "failed": memories.failed}
            found["dropped"] += memories.dropped
            if viewer.sees_all and memories.store is not None:
                found["url"] = without_password(self.settings.memory_database)
        return found

    def _runtimes(self, viewer: Viewer) -> list[dict[str, Any]]:
        links = [link for link in self.runtimes.all() if viewer.sees_all or link.tenant == viewer.tenant]
        return [{"name": link.label, "tools": sorted(link.tools), "writing": link.writing()} for link in links]

    def _endpoints(self) -> list[dict[str, str]]:
        settings = self.settings
        found = [
            {"url": one.url, "kind": one.kind.value, "models": ", ".join(one.models)} for one in settings.upstreams
        ]
        if settings.upstream:
            models = "all others" if found else "all"
            found.append({"url": settings.upstream, "kind": settings.engine.value, "models": models})
        return found


def _size(engine: sa.Engine) -> int | None:
    """Of the database's file, in bytes; None where it is a server."""
    path = engine.url.database
    if engine.dialect.name != "sqlite" or not path or not Path(path).is_file():
        return None
    return sum(one.stat().st_size for one in (Path(path), Path(f"{path}-wal")) if one.is_file())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
