"""An agent that runs a tool over its workspace and commits, again and again, until it is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from agentspec import speculate
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.declare import declared
from agentspec.tools_sandbox.tiers.overlay_tier import OverlayTier
from agentspec.tools_sandbox.tool import DeclaredTool
from tests.sandbox.places import Place

FILES = 12


def first_state(workspace: Path) -> None:
    here = os.getcwd()
    os.chdir(workspace)
    _write(0)
    os.chdir(here)


def advance() -> int:
    """Bring the whole workspace from one number to the next."""
    number = int(Path("number").read_text()) + 1
    shutil.rmtree("only")
    _write(number)
    return number


def _write(number: int) -> None:
    Path("number").write_text(str(number))
    os.makedirs("only")
    Path("only", f"is-{number}").write_text(str(number))
    os.symlink(f"is-{number}", "only/link")
    for name in range(FILES):
        os.makedirs(f"deep/{name}", exist_ok=True)
        Path(f"deep/{name}/file").write_text(str(number) * 1000)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"deep/{name}/without-{number - 2}")
        Path(f"deep/{name}/without-{number}").touch()


def number_of(workspace: Path) -> int:
    """The number that the workspace is at.

    Raises:
        AssertionError: one part of it is at another than the rest.
    """
    number = int((workspace / "number").read_text())
    assert sorted(os.listdir(workspace)) == ["deep", "number", "only"]
    assert sorted(os.listdir(workspace / "only")) == [f"is-{number}", "link"]
    assert os.readlink(workspace / "only/link") == f"is-{number}"
    for name in range(FILES):
        folder = workspace / "deep" / str(name)
        assert (folder / "file").read_text() == str(number) * 1000
        expected = {"file", f"without-{number}", f"without-{number - 1}"} - {"without--1"}
        assert set(os.listdir(folder)) == expected
    return number


def tool_of(workspace: Path) -> DeclaredTool:
    sandbox = Sandbox("overlay", workspace=str(workspace))
    return declared(speculate(advance, effect="write", stable_for=60.0, sandbox=sandbox))


def live(workspace: Path, state: Path, report: Path) -> None:
    """Until killed.

    The report's lines: `zygote PID`, the number at the start and after each commit, `LIE …` if it was told a lie.
    """
    tier = OverlayTier(state=state)
    tool = tool_of(workspace)
    tier.prepare([tool])
    place = Place("T2", tier, workspace)
    with report.open("a", buffering=1) as said:
        said.write(f"zygote {tier.zygote({}).pid}\n{number_of(workspace)}\n")
        while True:
            number = number_of(workspace)
            started = place.start(advance, in_workspace=True)
            try:
                started.wait(10.0).value()
                started.commit()
                number += 1
            except Exception:
                started.cancel()
                time.sleep(0.01)
            seen = number_of(workspace)
            said.write(f"{number}\n" if seen == number else f"LIE told {number}, found {seen}\n")
