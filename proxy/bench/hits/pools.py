"""What is measured on: recorded trajectories, read as the proxy would read them off the wire, in pools."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from agentspec.calls import ToolCall
from agentspec.errors import ConfigError
from agentspec.proxy.replay.recordings import Library, Recording, library_of, load, message_of
from agentspec.trajectory import ASSISTANT, USER, Said
from agentspec.wire import chat
from agentspec.wire.request import Schemas

ALL = "all"
SEED = 7


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A recorded trajectory as memory is told of it."""

    id: str
    history: tuple[Said, ...]
    tools: Schemas

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All its calls, in order."""
        return tuple(call for said in self.history if said.role == ASSISTANT for call in said.calls)

    def steps(self) -> Iterator[int]:
        """Where the agent was due an answer: its messages, but for a greeting before the user's first word."""
        asked = False
        for at, said in enumerate(self.history):
            if said.role == ASSISTANT and (asked or said.makes_calls):
                yield at
            asked = asked or said.role == USER


@dataclass(frozen=True, slots=True)
class Pool:
    """Files that are learnt from with one memory, in this order.

    Attributes:
        first: at most so many trajectories of each file, None for all.
        shuffled: whether the trajectories come in a random order, always the same.
    """

    name: str
    files: tuple[Path, ...]
    first: int | None = None
    shuffled: bool = False

    def trajectories(self) -> list[Trajectory]:
        """Read them.

        Raises:
            ConfigError: a file is missing, empty or no recording.
        """
        found = [trajectory for file in self.files for trajectory in _trajectories(file, self.first)]
        if self.shuffled:
            random.Random(SEED).shuffle(found)
        return found

    def bodies(self) -> Iterator[bytes]:
        """Each of them as one request for a chat completion, in the files' order."""
        return (request for file in self.files for _, request in _requests(file, self.first))


def pools_of(data: Iterable[Path], *, first: int | None = None, shuffled: bool = False) -> list[Pool]:
    """A pool for each file, and, where there are several, one of all.

    Raises:
        ConfigError: there is nothing there, or two files would share a pool's name.
    """
    files = tuple(file for path in data for file in _files(path))
    if not files:
        raise ConfigError("no recordings to measure on: name a file or a folder with --data")
    names = [*map(pool_name, files), *([ALL] if len(files) > 1 else [])]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ConfigError(f"two pools would be called {twice[0]}: give each file once, and rename one of two")
    groups = [(file,) for file in files] + ([files] if len(files) > 1 else [])
    return [Pool(name, group, first, shuffled) for name, group in zip(names, groups, strict=True)]


def pool_name(file: Path) -> str:
    """A file's name without its endings."""
    return file.name.removesuffix(".gz").removesuffix(".jsonl")


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        if not path.exists():
            raise ConfigError(f"{path} does not exist: give --data a recording (.jsonl.gz) or a folder of them")
        return (path,)
    inner = path / "trajectories"
    folder = inner if inner.is_dir() else path
    found = sorted(folder.glob("*.jsonl.gz"))
    if not found:
        raise ConfigError(f"{folder} holds no recording (*.jsonl.gz): give --data a file or another folder")
    return found


@lru_cache(maxsize=64)
def _trajectories(file: Path, first: int | None) -> tuple[Trajectory, ...]:
    return tuple(_read(identity, body) for identity, body in _requests(file, first))


def _requests(file: Path, first: int | None) -> Iterator[tuple[str, bytes]]:
    library = library_of(file)
    for recording in load(file)[:first]:
        yield f"{pool_name(file)}/{recording.model}", msgspec.json.encode(_body(recording, library))


def _read(identity: str, body: bytes) -> Trajectory:
    request = chat.read_request(body)
    return Trajectory(identity, tuple(request.said), request.tools)


def _body(recording: Recording, library: Library) -> dict[str, Any]:
    system = library.system(recording)
    opening = [{"role": "system", "content": system}] if system else []
    tools = library.tools_of(recording)
    return {"model": recording.model, "messages": [*opening, *map(message_of, recording.steps)], "tools": tools}
