"""Agents, zygotes and committing children that are killed at random: old or new, and nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentspec.tools_sandbox.tiers.overlay_tier import OverlayTier
from tests.sandbox import crashing_agent, outside
from tests.sandbox.support import OVERLAY, eventually, gone
from tests.sandbox.trees import fast_folder

pytestmark = OVERLAY

ROUNDS = int(os.environ.get("AGENTSPEC_TEST_ROUNDS", "5"))
TARGETS = ["agent", "zygote", "child"]


class Agent:
    """One in a process of its own."""

    def __init__(self, workspace: Path, state: Path, report: Path) -> None:
        self._report = report
        report.unlink(missing_ok=True)
        if (pid := os.fork()) == 0:
            try:
                os.setsid()
                crashing_agent.live(workspace, state, report)
            except BaseException:
                report.open("a").write(f"LIE {traceback.format_exc()}\n")
            finally:
                os._exit(1)
        self.pid = pid
        self._zygote = eventually(self._began, "the agent lives").removeprefix("zygote ")
        self.family = outside.below(pid) | {pid}

    def said(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return self._report.read_text().rpartition("\n")[0].splitlines()
        return []

    def _began(self) -> str:
        return (self.said()[1:] and self.said()[0]) or ""

    def numbers(self) -> list[int]:
        """Where the workspace was at its start and after each commit that it was told of."""
        return [int(line) for line in self.said()[1:]]

    def kill(self, target: str, chance: random.Random) -> None:
        if target == "agent":
            return
        victims = [int(self._zygote)] if target == "zygote" else sorted(outside.below(int(self._zygote)))
        if victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)

    def end(self) -> None:
        self.family |= outside.below(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    with fast_folder(tmp_path) as folder:
        yield folder


@pytest.fixture
def workspace(base: Path) -> Path:
    (base / "workspace").mkdir()
    crashing_agent.first_state(base / "workspace")
    return base / "workspace"


@pytest.mark.parametrize("target", TARGETS)
def test_whoever_is_killed_the_next_agent_finds_old_or_new_and_nothing_else(
    place: Any, workspace: Path, base: Path, target: str
) -> None:
    chance, mounts, number = random.Random(TARGETS.index(target)), outside.mounts(), 0
    expected = {0}
    for _ in range(ROUNDS):
        agent = Agent(workspace, base / "state", base / "report")
        for _ in range(1 if target == "agent" else 3):
            time.sleep(chance.random() * 0.2)
            agent.kill(target, chance)
        agent.end()
        eventually(lambda: all(gone(pid) for pid in agent.family), "all its processes have ended")  # noqa: B023
        assert not [line for line in agent.said() if line.startswith("LIE")]
        assert agent.numbers()[0] in expected
        number = agent.numbers()[-1]
        expected = {number, number + 1}
        assert outside.mounts() == mounts
        assert outside.foreign_namespaces(str(base)) == []
    assert recovered(workspace, base / "state") in expected
    assert number > ROUNDS / 2


def recovered(workspace: Path, state: Path) -> int:
    """A new agent starts, and nothing of the old ones is left; where the workspace then is."""
    with contextlib.closing(OverlayTier(state=state)) as tier:
        tier.prepare([crashing_agent.tool_of(workspace)])
        assert [path for path in tier.home(str(workspace)).iterdir() if path.is_dir()] == []
    return crashing_agent.number_of(workspace)
