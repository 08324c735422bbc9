"""Tools that another process can find by name, as their owner wrote them: the tests declare them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

HERE = os.getpid()
"""The agent's process; a run ahead has another one's module globals, and another pid."""

STATE = {"user": "nobody"}


class OutOfStock(Exception):
    """An error of the tools' own."""


def _work() -> None:
    time.sleep(0.06)  # less would not be worth a bet


def look_up(key: str) -> dict[str, Any]:
    _work()
    return {"key": key, "pid": os.getpid()}


async def look_up_soon(key: str) -> dict[str, Any]:
    await asyncio.sleep(0.06)
    return {"key": key, "pid": os.getpid()}


def same_key(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one["key"] == other["key"]


def of_this_process(key: str) -> str:
    """Wrongly declared: it depends on what only the agent's process knows."""
    _work()
    return f"{key} of {STATE['user']}"


def own_pid(key: str) -> int:
    _work()
    return os.getpid()


def undeclared_variable(key: str) -> str | None:
    _work()
    return os.environ.get(key)


def where(key: str) -> str:
    _work()
    return f"{key} in {os.getcwd()}, {os.environ.get('REGION')}, {os.environ.get('TZ')}"


def fail(key: str) -> str:
    _work()
    raise OutOfStock(key)


def fails_ahead(key: str) -> str:
    _work()
    if os.getpid() != HERE:
        raise OutOfStock(key)
    return f"{key}!"


def never_ends_ahead(key: str) -> str:
    while os.getpid() != HERE:
        time.sleep(0.05)
    return f"{key}!"


def add_line(text: str) -> dict[str, Any]:
    """Write a line into a file of the working folder; how many there are, and who wrote."""
    _work()
    with Path("log").open("a") as log:
        log.write(f"{text}\n")
    return {"key": len(Path("log").read_text().splitlines()), "pid": os.getpid()}


async def add_line_soon(text: str) -> dict[str, Any]:
    return add_line(text)


def add_line_slowly_ahead(text: str) -> dict[str, Any]:
    """Ahead of time it never comes to its end."""
    made = add_line(text)
    while os.getpid() != HERE:
        time.sleep(0.05)
    return made


async def add_line_slowly_soon(text: str) -> dict[str, Any]:
    return add_line_slowly_ahead(text)


def add_line_and_fail(text: str) -> None:
    add_line(text)
    raise OutOfStock(text)


def write_own_pid(name: str) -> None:
    _work()
    Path(name).write_text(str(os.getpid()))


def write_at(path: str) -> str:
    _work()
    Path(path).write_text(str(os.getpid()))
    return path


def count_lines(name: str) -> int:
    _work()
    return len(Path(name).read_text().splitlines())


def count_and_note(name: str) -> int:
    """Declared a read, but it changes a file."""
    with Path("reads").open("a") as log:
        log.write("read\n")
    return count_lines(name)
