"""Recorded trajectories, as they lie in gzip JSON Lines, made complete: every call has an id, every result is text.

One line is one `Recording`. Its system prompt and tools are kept apart, by reference, in `prompts.json.gz` and
`tools.json.gz`; both are looked for beside the file and one folder up.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from agentspec.errors import ConfigError


class Call(msgspec.Struct, frozen=True):
    """A tool call that the model made."""

    name: str
    arguments: dict[str, Any] = {}
    id: str = ""


class Step(msgspec.Struct, frozen=True):
    """One message of a trajectory; a tool's result is in `tool_result`."""

    role: Literal["user", "assistant", "tool"]
    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[Call, ...] | None = None
    tool_call_id: str | None = None
    tool_result: Any = None
    t: float | None = None

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tool calls, empty where there are none."""
        return self.tool_calls or ()


class Recording(msgspec.Struct, frozen=True):
    """One agent's trajectory on one task."""

    task_id: str
    steps: tuple[Step, ...]
    source: str = ""
    system_ref: str | None = None
    tools_ref: str | None = None
    model: str = ""
    """The name under which the recorded endpoint offers it: the task id, numbered where tasks repeat."""


class Library(msgspec.Struct, frozen=True):
    """System prompts and tool schemas, by the references that recordings make."""

    prompts: dict[str, str] = {}
    tools: dict[str, list[dict[str, Any]]] = {}

    def system(self, recording: Recording) -> str | None:
        """The system prompt that the recorded agent had, None where it had none."""
        return self.prompts.get(recording.system_ref or "")

    def tools_of(self, recording: Recording) -> list[dict[str, Any]]:
        """The tools' schemas in the OpenAI shape, empty where none were recorded."""
        return self.tools.get(recording.tools_ref or "", [])


def load(*paths: Path) -> list[Recording]:
    """Read the trajectories of files (`.jsonl.gz` or `.jsonl`), in the order given.

    Raises:
        ConfigError: a file is missing, empty or not such a recording.
    """
    return list(_named(_complete(recording) for path in paths for recording in _read(path)))


def library_of(*paths: Path) -> Library:
    """The prompts and tools that belong to files of recordings; empty where they are not kept with them.

    Raises:
        ConfigError: a file of prompts or tools is broken.
    """
    library = Library()
    for path in paths:
        library.prompts.update(_beside(path, "prompts.json.gz", dict[str, str]))
        library.tools.update(_beside(path, "tools.json.gz", dict[str, list[dict[str, Any]]]))
    return library


def message_of(step: Step) -> dict[str, Any]:
    """A step as the message that the agent keeps of it."""
    if step.role == "tool":
        return {"role": "tool", "tool_call_id": step.tool_call_id, "content": step.tool_result}
    message: dict[str, Any] = {"role": step.role, "content": step.content}
    if step.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in step.calls
        ]
    return message


def _read(path: Path) -> list[Recording]:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        decoder = msgspec.json.Decoder(Recording)
        read = [decoder.decode(line) for line in raw.split(b"\n") if line.strip()]
    except (OSError, EOFError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path} is no recording of trajectories (gzip JSON Lines): {error}") from error
    if not read:
        raise ConfigError(f"{path} holds no trajectory")
    return read


def _beside(path: Path, name: str, shape: Any) -> Any:
    for folder in (path.parent, path.parent.parent):
        file = folder / name
        if file.exists():
            try:
                return msgspec.json.decode(gzip.decompress(file.read_bytes()), type=shape)
            except (OSError, EOFError, msgspec.MsgspecError) as error:
                raise ConfigError(f"{file} cannot be read: {error}") from error
    return {}


def _complete(recording: Recording) -> Recording:
    """Give each call an id, each result its call's id and the text that the agent put into its message."""
    steps: list[Step] = []
    waiting: list[str] = []
    for at, step in enumerate(recording.steps):
        if step.role == "assistant":
            calls = tuple(
                call if call.id else msgspec.structs.replace(call, id=_made_id(recording, at, nth))
                for nth, call in enumerate(step.calls)
            )
            waiting = [call.id for call in calls]
            steps.append(msgspec.structs.replace(step, tool_calls=calls))
        elif step.role == "tool":
            call_id = step.tool_call_id or (waiting[0] if waiting else "")
            if call_id in waiting:
                waiting.remove(call_id)
            steps.append(msgspec.structs.replace(step, tool_call_id=call_id, tool_result=_text(step.tool_result)))
        else:
            steps.append(step)
    return msgspec.structs.replace(recording, steps=tuple(steps))


def _made_id(recording: Recording, step: int, nth: int) -> str:
    seed = f"{recording.source}/{recording.task_id}/{step}/{nth}"
    return f"call_{hashlib.sha256(seed.encode()).hexdigest()[:24]}"


def _text(result: Any) -> str:
    if isinstance(result, str):
        return result
    return "" if result is None else msgspec.json.encode(result).decode()


def _named(recordings: Iterable[Recording]) -> Iterator[Recording]:
    """The first recording of a task is named like the task, the second `TASK#2`, and so on."""
    seen: Counter[str] = Counter()
    for recording in recordings:
        seen[recording.task_id] += 1
        nth = seen[recording.task_id]
        name = recording.task_id if nth == 1 else f"{recording.task_id}#{nth}"
        yield msgspec.structs.replace(recording, model=name)
