"""Packages import only from lower floors; files and functions stay small; torch stays in its corner."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = {"agentspec": 0, "speculators": 1, "memory": 1, "tools_sandbox": 1, "proxy": 2}
UPPER = set(FLOORS) - {"agentspec"}
HEAVY = {"torch", "transformers", "safetensors", "accelerate", "gguf", "llguidance"}
VERIFIER = "agentspec/verifier/"
FACADE = "agentspec/__init__.py"

MOST_LINES = 300
MOST_FUNCTION_LINES = 40


def modules() -> list[Path]:
    return sorted(path for package in FLOORS for path in (ROOT / package).rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module that is imported, with its line; `from a import b` is told as a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def faults(where: str, source: str) -> list[str]:
    """What is wrong with a module's imports; `where` is its path below the root."""
    package, found = where.split("/", maxsplit=1)[0], []
    for line, name in imported(ast.parse(source)):
        parts = name.split(".")
        if name.startswith("."):
            found.append(f"{where}:{line} relative import {name}")
        elif parts[0] in UPPER:
            found.append(f"{where}:{line} bare import {name}")
        elif parts[0] in HEAVY and not where.startswith(VERIFIER):
            found.append(f"{where}:{line} {parts[0]} outside the verifier")
        elif parts[0] == "agentspec" and where != FACADE:
            target = parts[1] if len(parts) > 1 and parts[1] in UPPER else "agentspec"
            if target != package and FLOORS[target] >= FLOORS[package]:
                found.append(f"{where}:{line} {package} imports {target}")
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_lower_floors(path: Path) -> None:
    assert faults(path.relative_to(ROOT).as_posix(), path.read_text()) == []


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("agentspec/gating/gate.py", "from agentspec.proxy.turn import Deps"),
        ("agentspec/gating/gate.py", "from agentspec import memory"),
        ("agentspec/gating/gate.py", "import agentspec.speculators.probe"),
        ("agentspec/gating/gate.py", "def f():\n    from agentspec.tools_sandbox import claims"),
        ("speculators/probe.py", "from agentspec.memory.recall import Recall"),
        ("memory/ledger.py", "from agentspec.tools_sandbox.claim_table import x"),
        ("tools_sandbox/tool.py", "if True:\n    import agentspec.proxy"),
        ("proxy/turn.py", "import torch.nn"),
        ("agentspec/gating/gate.py", "from torch import nn"),
        ("proxy/turn.py", "from memory.ledger import SqlLedger"),
        ("memory/ledger.py", "import proxy"),
        ("proxy/turn.py", "from .relay import relay"),
    ],
)
def test_a_wrong_import_is_seen(where: str, line: str) -> None:
    assert len(faults(where, line)) == 1


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("proxy/turn.py", "from agentspec.memory.ledger import SqlLedger\nfrom agentspec import channel\nimport json"),
        ("memory/ledger.py", "from agentspec.calls import ToolCall\nfrom agentspec.memory import store"),
        ("agentspec/verifier/engine/worker.py", "import torch\nfrom agentspec.verifier.engine.kv import x"),
        (FACADE, "from agentspec.tools_sandbox.connect import connect"),
        ("memory/x.py", "import memory_profiler\nimport proxyx"),
    ],
)
def test_a_right_import_is_none_of_our_business(where: str, line: str) -> None:
    assert faults(where, line) == []


def test_every_folder_of_the_wheel_has_a_floor() -> None:
    import tomllib

    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) == set(FLOORS)
    assert {name: f"agentspec/{name}" for name in UPPER} == wheel["sources"]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_and_its_functions_are_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= MOST_LINES
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [(f.name, lines_of(f)) for f in functions if lines_of(f) > MOST_FUNCTION_LINES] == []


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines without the docstring."""
    first, last = function.body[0], function.end_lineno or function.lineno
    told = ast.get_docstring(function) is not None
    return last - function.lineno + 1 - ((first.end_lineno or 0) - first.lineno + 1 if told else 0)


def test_nothing_is_called_utils() -> None:
    assert [path.name for path in modules() if path.stem in ("utils", "util", "helpers", "misc", "common")] == []


@pytest.mark.parametrize("name", sorted(UPPER))
def test_type_checkers_find_the_packages_by_links(name: str) -> None:
    link = ROOT / ".typings" / "agentspec" / name
    assert link.is_symlink()
    assert link.resolve() == ROOT / name
    assert not link.readlink().is_absolute()


def test_there_is_no_other_link() -> None:
    assert {path.name for path in (ROOT / ".typings" / "agentspec").iterdir()} == UPPER
