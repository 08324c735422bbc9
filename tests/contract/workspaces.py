"""A workspace for tools that run ahead over copies of it, and what is to be seen of the copies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import agentspec
from agentspec import speculate
from agentspec.tools_sandbox import fidelity
from tests.contract.scripted import eventually


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a workspace below this folder, with nothing to prove; returns where the copies are kept."""
    monkeypatch.setenv("AGENTSPEC_STATE", str(folder / "state"))
    monkeypatch.setattr(fidelity, "CHECKS", 0)
    monkeypatch.setattr(fidelity, "RECHECKED_SHARE", 0.0)
    (folder / "workspace").mkdir()
    monkeypatch.chdir(folder / "workspace")
    return folder / "state"


def over(function: Any, effect: str = "write", **options: Any) -> Any:
    """This function, declared to run ahead over a copy of the working folder."""
    place = agentspec.Sandbox("overlay", workspace=os.getcwd())
    return speculate(effect=effect, stable_for=30.0, sandbox=place, **options)(function)


def lines(name: str = "log") -> list[str]:
    """The lines of a file of the working folder."""
    return Path(name).read_text().splitlines() if Path(name).exists() else []


def nothing_is_kept(state: Path) -> None:
    """No copy is left."""

    def rooms() -> list[Path]:
        return [room for home in state.glob("*/") for room in home.glob("*/")]

    eventually(lambda: not rooms(), f"no copy is left: {rooms()}")
