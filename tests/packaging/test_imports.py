"""`import agentspec` is cheap, its names resolve, and a user's own `memory.py` does no harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = [
    "torch",
    "transformers",
    "openai",
    "sqlalchemy",
    "httptools",
    "httpx",
    "pydantic",
    "msgspec",
    "uvicorn",
    "rich",
]


def run(code: str, cwd: Path, path: Path | None = None) -> str:
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(statement: str, cwd: Path) -> list[str]:
    code = f"import sys, json\n{statement}\nprint(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    return list(json.loads(run(code, cwd)))


def test_importing_agentspec_loads_nothing_big(tmp_path: Path) -> None:
    assert loaded("import agentspec; agentspec.__version__; dir(agentspec)", tmp_path) == []


def test_declaring_a_tool_loads_neither_the_proxy_nor_the_model(tmp_path: Path) -> None:
    big = loaded("from agentspec import speculate", tmp_path)
    assert not set(big) & {"torch", "transformers", "openai", "sqlalchemy", "httptools", "uvicorn", "rich"}


def test_the_command_loads_no_model(tmp_path: Path) -> None:
    assert "torch" not in loaded("import agentspec.proxy.cli", tmp_path)
    assert "torch" not in loaded("import agentspec.proxy.wiring", tmp_path)


def test_every_public_name_resolves() -> None:
    import agentspec

    for name in agentspec.__all__:
        assert callable(getattr(agentspec, name))
        assert name in dir(agentspec)
    with pytest.raises(AttributeError, match="connect, declare_tools, embedded, speculate"):
        _ = agentspec.conect  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["memory", "proxy", "speculators", "tools_sandbox"])
def test_a_users_own_module_of_that_name_is_the_users(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("mine = True")
    code = f"import {name}, agentspec.{name} as ours; assert {name}.mine; assert not hasattr(ours, 'mine')"
    run(code, tmp_path, tmp_path)


def test_a_users_own_file_called_agentspec_beside_no_checkout_is_not_mixed_in(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy" / "__init__.py").write_text("raise SystemExit('wrong proxy')")
    run("import agentspec.proxy.asgi", tmp_path)
