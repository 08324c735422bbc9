"""`agentspec memory`: what is kept is shown, carried elsewhere and forgotten; bad input is one clear line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agentspec.memory.store import MemoryStore
from agentspec.proxy.cli import main
from agentspec.recollection import Past
from agentspec.trajectory import Said

Output = pytest.CaptureFixture[str]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A database in its usual place, with trajectories of two tenants."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    store = MemoryStore(f"sqlite:///{tmp_path}/agentspec/memory.sqlite3")
    for n in range(4):
        store.remember("acme", Past(f"t{n}", f"s{n % 2}", (Said("user", bytes(16)),)))
    store.remember("[red]odd", Past("t", "s", (Said("user", bytes(16)),)))
    return store


def command(*arguments: str | Path) -> int:
    sys.argv = ["agentspec", "memory", *map(str, arguments)]
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def _arguments_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)


def test_what_is_kept_is_shown(kept: MemoryStore, capsys: Output) -> None:
    assert command("show") == 0
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split() == ["tenant", "trajectories", "scopes", "size", "oldest", "newest"]
    assert [row.split()[:3] for row in rows] == [["[red]odd", "1", "1"], ["acme", "4", "2"]]


def test_an_empty_database_says_so(tmp_path: Path, capsys: Output) -> None:
    assert command("show", "--database", f"sqlite:///{tmp_path / 'm.sqlite3'}") == 0
    assert "nothing yet" in capsys.readouterr().out


def test_a_file_carries_it_elsewhere(kept: MemoryStore, tmp_path: Path, capsys: Output) -> None:
    file, other = tmp_path / "out.jsonl", f"sqlite:///{tmp_path / 'other.sqlite3'}"
    assert command("export", "--tenant", "acme", "--out", file) == 0
    assert "4 trajectories" in capsys.readouterr().out
    assert file.stat().st_mode & 0o077 == 0
    assert [json.loads(line)["trajectory"] for line in file.read_text().splitlines()] == ["t0", "t1", "t2", "t3"]
    assert command("import", file, "--tenant", "new", "--database", other) == 0
    assert [past for _, past in MemoryStore(other).pasts("new")] == [past for _, past in kept.pasts("acme")]


def test_without_a_file_it_goes_to_standard_output(
    kept: MemoryStore, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert command("export", "--tenant", "acme") == 0
    assert capsysbinary.readouterr().out == b"".join(kept.export("acme"))


@pytest.mark.parametrize(
    ("what", "count"), [(["--trajectory", "t1"], 1), (["--scope", "s0"], 2), (["--all"], 4), (["--scope", "nobody"], 0)]
)
def test_what_is_named_is_forgotten(kept: MemoryStore, capsys: Output, what: list[str], count: int) -> None:
    assert command("forget", "--tenant", "acme", *what) == 0
    assert f"{count} trajectories of tenant 'acme' forgotten" in capsys.readouterr().out
    assert kept.stats("acme").trajectories == 4 - count
    assert kept.stats("[red]odd").trajectories == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["forget", "--tenant", "acme"], "say what to forget"),
        (["forget", "--tenant", "acme", "--all", "--scope", "s"], "say what to forget"),
        (["import", "nowhere.jsonl", "--tenant", "acme"], "cannot read nowhere.jsonl"),
        (["import", "bad.jsonl", "--tenant", "acme"], "bad.jsonl: line 1 is no trajectory of ours"),
        (["export", "--tenant", "acme", "--out", "no/such/folder"], "cannot write no/such/folder"),
        (["show", "--database", "mysql://x"], "neither SQLite nor PostgreSQL"),
        (["show", "--database", "sqlite:////proc/nope/m"], "setting memory_database: cannot open"),
        (["export"], "tenant"),
    ],
)
def test_bad_input_is_a_clear_message(kept: MemoryStore, capsys: Output, arguments: list[str], told: str) -> None:
    Path("bad.jsonl").write_text('{"a": 1}\n')
    assert command(*arguments) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert "Traceback" not in shown
    assert kept.stats("acme").trajectories == 4
