"""The series that a proxy tells beside those of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from agentspec.config import Settings
from agentspec.proxy.wiring import build


def live_names() -> Iterator[str]:
    """Names of a real proxy's page that has seen nothing yet; families without a series by their HELP lines."""
    with TemporaryDirectory() as folder:
        app = build(
            Settings(
                upstream="http://127.0.0.1:9/v1",
                database=f"sqlite:///{Path(folder) / 'l.sqlite3'}",
                memory_database="",
                otel_endpoint="http://127.0.0.1:9",
            )
        )
        registry = app.pages.registry
        assert registry is not None
        for family in registry.collect():
            yield family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
