"""The recorded trajectories that the arms play: files given by --data, or tau2's ground truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentspec.effects import Effect
from agentspec.errors import ConfigError
from agentspec.proxy.bench.agent.ground_truth import DOMAINS, ground_truth
from agentspec.proxy.bench.agent.latencies import Latencies, for_half_the_time
from agentspec.proxy.bench.agent.synthetic import written
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.recordings import Library, Recording, library_of, load
from agentspec.proxy.replay.tau2_tools import PREFIX, covers, toolbox


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is played.

    Attributes:
        tasks: in the order in which they are learnt from.
        files: where they lie, and maybe others that are not played.
        effects: of the tools of all their domains.
    """

    tasks: Sequence[Recording]
    library: Library
    files: Sequence[Path]
    effects: dict[str, Effect]
    latencies: Latencies

    @property
    def domains(self) -> list[str]:
        """Of the tasks, in order."""
        return list(dict.fromkeys(map(domain_of, self.tasks)))

    @property
    def ahead(self) -> frozenset[str]:
        """The tools that may run ahead."""
        return frozenset(name for name, effect in self.effects.items() if effect.changes_nothing)


def domain_of(task: Recording) -> str:
    """The domain that a task belongs to."""
    return (task.tools_ref or "").removeprefix(PREFIX)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the tasks come from: files and folders, or without any tau2's ground truth in these domains.

    Attributes:
        most: at most so many tasks of each domain.
    """

    data: Sequence[Path] = ()
    domains: Sequence[str] = DOMAINS
    most: int | None = None


def recorded(source: Source, folder: Path, pace: Pace, seed: int = 1) -> Recorded:
    """Read the recordings, or write tau2's ground truth into the folder.

    Raises:
        ConfigError: tau2 is missing, or no file holds trajectories that its tools can play.
    """
    if source.data:
        files = [file for path in source.data for file in _files(path)]
        tasks = [task for task in load(*files) if covers(task.tools_ref)]
        library = library_of(*files)
    else:
        files, tasks, library = _made(folder, source)
    tasks = _first(tasks, source.most)
    if not tasks:
        raise ConfigError("none of the files given by --data holds trajectories with tau2's tools")
    effects = _effects(tasks)
    return Recorded(tasks, library, files, effects, for_half_the_time(tasks, effects, pace, seed))


def _made(folder: Path, source: Source) -> tuple[list[Path], list[Recording], Library]:
    tasks: list[Recording] = []
    library = Library()
    for domain in source.domains:
        made, theirs = ground_truth(domain, source.most)
        tasks += made
        library.prompts.update(theirs.prompts)
        library.tools.update(theirs.tools)
    named = [_named_alike(task) for task in tasks]
    return [written(named, folder, library)], named, library


def _named_alike(task: Recording) -> Recording:
    """Under the name that reading the file gives it: the task's id, which two domains may share."""
    return Recording(task.model, task.steps, task.source, task.system_ref, task.tools_ref, task.model)


def task_id_of(task: Recording) -> str:
    """tau2's own id of the task."""
    return task.task_id.removeprefix(f"{task.tools_ref}-")


def _first(tasks: Sequence[Recording], most: int | None) -> list[Recording]:
    kept: dict[str, list[Recording]] = {}
    for task in tasks:
        kept.setdefault(domain_of(task), []).append(task)
    return [task for theirs in kept.values() for task in theirs[:most]]


def _effects(tasks: Sequence[Recording]) -> dict[str, Effect]:
    """Of all tools of the tasks' domains; one toolbox of each tells them."""
    by_domain = {task.tools_ref: task for task in tasks}
    found: dict[str, Effect] = {}
    for task in by_domain.values():
        for name, tool in toolbox(task.tools_ref or "", task_id_of(task)).declared.items():
            found[name] = Effect(tool.effect)
    return found


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    inner = path / "trajectories"
    return sorted((inner if inner.is_dir() else path).glob("tau2_*.jsonl.gz"))
