"""`python -m agentspec.proxy.bench.agent.serve`: the proxy, as `agentspec serve` has it, with an arm's predictors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentspec.config import Engine
from agentspec.config import load as load_settings
from agentspec.errors import ConfigError
from agentspec.memory.keeper import Keeper
from agentspec.memory.recall import Recall
from agentspec.proxy.bench.agent.arms import Arm, Bench, arms, live_arms
from agentspec.proxy.bench.agent.predictors import Answers
from agentspec.proxy.bench.agent.virtual_world import past_of
from agentspec.proxy.replay.matching import Index
from agentspec.proxy.replay.processes import Told, proxy_process
from agentspec.proxy.replay.recordings import library_of, load
from agentspec.proxy.server import serve
from agentspec.proxy.wiring import Parts

_QUIET_S = 0.5
"""A trajectory is learnt from when it has been quiet for so long: tasks follow each other at once here."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What an arm's proxy is started with.

    Attributes:
        files: the recordings, for an arm that may look at them.
        taught: recordings that memory has learnt before the first request.
        probe_s, accuracy: as in `Bench`.
    """

    arm: Arm
    upstream: str
    database: str
    files: Sequence[Path]
    probe_s: float = 0.1
    accuracy: float = 0.3
    taught: Sequence[Path] = ()
    engine: Engine = Engine.OPENAI


@contextmanager
def arm_process(serving: Serving, told: Told | None = None) -> Iterator[str]:
    """Run an arm's proxy; gives its URL."""
    arm = serving.arm
    options = ["--arm", arm.name, "--probe-s", str(serving.probe_s), "--accuracy", str(serving.accuracy)]
    for file in serving.files if arm.looks else ():
        options += ["--recording", str(file)]
    options += ["--engine", serving.engine, *(["--memory"] if arm.memory else []), *(["--probe"] if arm.probes else [])]
    for file in serving.taught:
        options += ["--taught", str(file)]
    program = ("agentspec.proxy.bench.agent.serve",)
    with proxy_process(serving.upstream, serving.database, *options, program=program, told=told) as url:
        yield url


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and serve; the exit status says whether it could start."""
    parser = argparse.ArgumentParser(prog="python -m agentspec.proxy.bench.agent.serve")
    for name in ("upstream", "database", "memory-database", "arm"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--port", type=int, required=True)
    for name in ("probe-s", "accuracy", "holdout-share"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--engine", type=Engine, required=True)
    for name in ("memory", "probe"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--recording", type=Path, action="append", default=[])
    parser.add_argument("--taught", type=Path, action="append", default=[])
    given = parser.parse_args(arguments)
    try:
        makes = ({arm.name: arm for arm in live_arms()} | arms(given.accuracy))[given.arm].makes
        bench = Bench(Answers(Index(load(*given.recording))), given.probe_s, given.accuracy)
        names = ("upstream", "port", "database", "memory", "probe", "engine", "holdout_share")
        flags = {name: getattr(given, name) for name in names}
        flags |= {"memory_database": "", "memory_idle_s": _QUIET_S, "keep_arguments": True}
        memories = Keeper(None, lambda: taught(given.taught)) if given.memory and given.taught else None
        serve(
            load_settings(flags),
            Parts(memories=memories, speculators=lambda desk, usual: makes(bench, desk, usual) if makes else []),
        )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def taught(files: Sequence[Path]) -> Recall:
    """A memory that has learnt these recordings."""
    memory = Recall()
    for recording in load(*files):
        memory.learn(past_of(recording, library_of(*files)))
    return memory


if __name__ == "__main__":
    sys.exit(main())
