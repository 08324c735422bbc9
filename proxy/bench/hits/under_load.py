"""How fast memory is when it is full: a hundred thousand trajectories first, then real ones against the clock.

What fills it are the recordings over and over, the values that tell them apart renamed each time: the same tools and
the same order of calls, other customers, bookings and files.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from agentspec.proxy.bench.hits.passes import SCOPE, Build, leave_alone, passed
from agentspec.proxy.bench.hits.pools import Pool
from agentspec.recollection import Past, Recollection
from agentspec.wire import chat

MARK = "\ue000"
"""Stands in a template wherever a number is put in; private use in Unicode, so that no recording has it."""

_WORD = re.compile(r"(?=\w*[^\W\d])\w{3,}")
_COMMON = 20
"""A word that more than one recording in so many holds as a value is no value that tells them apart."""


@runtime_checkable
class Fills(Protocol):
    """A memory that takes in many trajectories faster than one by one."""

    def fill(self, pasts: Iterable[Past]) -> object: ...


@runtime_checkable
class Weighed(Protocol):
    """A memory that knows how big it is."""

    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """A full memory's times and size.

    Attributes:
        held: trajectories in it when the clock started.
        fill_s: how long they took, making them included.
        size_bytes: what it says that it weighs; else by how much this process has grown.
    """

    held: int
    fill_s: float
    size_bytes: int | None
    forecast_ms: tuple[float, ...]
    learn_ms: tuple[float, ...]


def under_load(build: Build, pool: Pool, held: int, most: int) -> Loaded:
    """Fill an empty memory, then predict and learn real trajectories with it.

    Args:
        build: makes the memory.
        pool: the recordings that fill it and that it is then asked about.
        held: how many trajectories fill it.
        most: at most how many real ones are timed, from all over the pool.
    """
    trajectories, pasts = pool.trajectories(), synthetic(pool)
    leave_alone()
    before_bytes = _resident_bytes()
    memory = build(frozenset())
    started = time.perf_counter()
    _fill(memory, islice(pasts, held))
    fill_s = time.perf_counter() - started
    size_bytes = _size_bytes(memory, before_bytes)
    timed = passed(memory, trajectories[:: -(-len(trajectories) // most)])
    return Loaded(held, fill_s, size_bytes, timed.forecast_ms, timed.learn_ms)


def _fill(memory: Recollection, pasts: Iterable[Past]) -> None:
    if isinstance(memory, Fills):
        memory.fill(pasts)
        return
    for past in pasts:
        memory.learn(past)


def _size_bytes(memory: Recollection, before_bytes: int | None) -> int | None:
    if isinstance(memory, Weighed):
        return memory.size_bytes()
    now_bytes = _resident_bytes()
    return None if before_bytes is None or now_bytes is None else max(0, now_bytes - before_bytes)


def _resident_bytes() -> int | None:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def synthetic(pool: Pool) -> Iterator[Past]:
    """The pool's trajectories, again and again, each time with other values; endless, and always the same."""
    templates = _templates([msgspec.json.decode(body) for body in pool.bodies()])
    return (_past(templates[nth % len(templates)], nth, nth // len(templates)) for nth in count())


def _past(template: Sequence[str], nth: int, round_: int) -> Past:
    request = chat.read_request(f"_{round_}".join(template).encode())
    return Past(f"load/{nth}", SCOPE, tuple(request.said), request.tools)


def _templates(bodies: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Each body's JSON, cut wherever a value is to be made another one."""
    words = [{word for text in _argument_texts(body) for word in _WORD.findall(text)} for body in bodies]
    held_by = Counter(word for held in words for word in held)
    often = max(1, len(bodies) // _COMMON)
    rare = frozenset(word for word, holders in held_by.items() if holders <= often)
    return [msgspec.json.encode(_marked(body, rare)).decode().split(MARK) for body in bodies]


def _argument_texts(body: dict[str, Any]) -> Iterator[str]:
    for call in (call for message in body["messages"] for call in message.get("tool_calls", ())):
        yield from _texts(json.loads(call["function"]["arguments"]))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _marked(body: dict[str, Any], rare: frozenset[str]) -> dict[str, Any]:
    """A body with a mark behind each rare word, and behind the user's words, so that no two copies are the same."""
    messages = [_marked_message(message, rare) for message in body["messages"]]
    for message in messages:
        if message["role"] == "user" and isinstance(message["content"], str):
            message["content"] += MARK
    return {**body, "messages": messages}


def _marked_message(message: dict[str, Any], rare: frozenset[str]) -> dict[str, Any]:
    marked = dict(message)
    if message["role"] != "system":
        marked["content"] = _mark(message.get("content"), rare)
    if "tool_calls" in message:
        marked["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _marked_arguments(call, rare)}}
            for call in message["tool_calls"]
        ]
    return marked


def _marked_arguments(call: dict[str, Any], rare: frozenset[str]) -> str:
    return json.dumps(_mark(json.loads(call["function"]["arguments"]), rare), ensure_ascii=False)


def _mark(value: Any, rare: frozenset[str]) -> Any:
    if isinstance(value, str):
        return _WORD.sub(lambda found: found[0] + MARK if found[0] in rare else found[0], value)
    if isinstance(value, list):
        return [_mark(inner, rare) for inner in value]
    if isinstance(value, dict):
        return {key: _mark(inner, rare) for key, inner in value.items()}
    return value
