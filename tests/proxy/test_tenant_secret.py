"""The secret that tenants without keys are told apart by: kept, private, the same for all, and no reason to stop."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentspec.config import Settings
from agentspec.proxy import tenant_secret
from agentspec.proxy.doors import Doors
from agentspec.proxy.tenant_secret import kept_secret


def tenant(key: bytes = b"Bearer k", **settings: object) -> str:
    return Doors(Settings(**settings)).tenant([(b"authorization", key)])  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "agentspec" / "tenants.secret"


def test_a_tenant_is_the_same_after_a_restart(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tenant()
    monkeypatch.setattr(tenant_secret, "_OF_THIS_PROCESS", bytes(32))
    assert tenant() == before != tenant(b"Bearer other")
    file.unlink()
    assert tenant() != before


def test_only_its_owner_reads_it_and_nothing_else_is_left(file: Path) -> None:
    assert len(kept_secret(file)) == 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_whoever_starts_at_the_same_time_has_the_same(file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(kept_secret, [file] * 32))) == 1
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("broken", ["a folder", "too short", "no place"])
def test_one_that_cannot_be_used_is_one_line_and_one_of_this_process(
    file: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    if broken == "no place":
        file.parent.write_text("a file where a folder should be")
    else:
        file.parent.mkdir()
        file.mkdir() if broken == "a folder" else file.write_bytes(b"short")
    caplog.set_level(logging.WARNING)
    assert tenant() == tenant(memory=False)
    assert [str(file) in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize("settings", [{"memory": False}, {"memory_database": ""}, {"speculation": False}])
def test_where_nothing_is_kept_no_file_is_made(file: Path, settings: dict[str, object]) -> None:
    tenant(**settings)
    assert not file.parent.exists()
