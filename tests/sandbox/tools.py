"""Ordinary and careless tools for the conformance suite. They take JSON and are declared by the fixture `place`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from tests.sandbox import shapes

COUNTER = 0


def json_result(name: str) -> Any:
    return shapes.JSON_RESULTS[name]


def python_result(name: str) -> Any:
    return shapes.PYTHON_RESULTS[name]


def unusual_result(name: str) -> Any:
    return shapes.UNUSUAL_RESULTS[name]


def echo(value: Any) -> Any:
    return value


def greet(name: str, greeting: str = "hello", *, loud: bool = False) -> str:
    return f"{greeting} {name}" + ("!" if loud else "")


def nothing() -> None:
    pass


def typed(colour: shapes.Colour, when: datetime.datetime, item: shapes.Item, order: shapes.Order | None = None) -> Any:
    """The types that the arguments arrived with."""
    return [repr(colour), when.isoformat(), repr(item), type(order).__name__]


async def greet_soon(name: str) -> str:
    async with asyncio.timeout(5):
        await asyncio.sleep(0.01)
    return f"hello {name}"


async def gather(numbers: list[int]) -> list[int]:
    async def double(number: int) -> int:
        return await asyncio.to_thread(lambda: 2 * number)

    return await asyncio.gather(*map(double, numbers))


async def fail_soon() -> None:
    await asyncio.sleep(0)
    raise shapes.Refusal(7, detail="no stock")


def megabytes(count: int) -> bytes:
    return bytes(range(256)) * 4096 * count


def lines(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"line {number}"} for number in range(count)]


def nest(depth: int) -> list[Any]:
    """A list in a list in a list …"""
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


def fail(name: str) -> None:
    raise shapes.ERRORS[name]


def fail_because() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        problem = ValueError("second")
        problem.add_note("a note")
        raise problem from error


def fail_together() -> None:
    raise ExceptionGroup("several", [ValueError("one"), ExceptionGroup("more", [shapes.Refusal(2, detail="two")])])


def fail_unspeakably(how: str) -> None:
    """Raise what cannot leave the run as it is."""

    class Local(Exception):
        pass

    if how == "local class":
        raise Local("who am I")
    if how == "mute":
        raise shapes.Mute("x")
    error = ValueError("with luggage")
    error.luggage = threading.Lock()  # type: ignore[attr-defined]
    raise error


def validate(text: str) -> None:
    shapes.Order.model_validate({"id": text})


def unreturnable(kind: str) -> Any:
    """What lives only where it was made."""

    async def later() -> None: ...

    async def stream() -> AsyncIterator[int]:
        yield 1

    class Local:
        pass

    made: dict[str, Any] = {
        "generator": lambda: (number for number in range(3)),
        "async generator": stream,
        "coroutine": later,
        "lambda": lambda: lambda: 1,
        "open file": lambda: open("/dev/null"),  # noqa: SIM115
        "lock": threading.Lock,
        "thread": threading.Thread,
        "module": lambda: sys,
        "object of a local class": Local,
        "deep inside": lambda: {"a": [1, {"b": threading.Lock()}]},
    }
    return made[kind]()


def count() -> int:
    """How often this was called, as far as the module's globals know."""
    global COUNTER
    COUNTER += 1
    os.environ["COUNTED"] = str(COUNTER)
    sys.path.append("/counted")
    return COUNTER + sys.path.count("/counted") - 1


def luck() -> list[Any]:
    return [random.random(), uuid.uuid4().hex, os.urandom(8).hex()]


def in_threads(count: int) -> list[int]:
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda number: number * number, range(count)))


def leave_a_thread() -> str:
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return "done"


def speak(megabytes: int) -> int:
    """Say a lot where nobody listens."""
    text = "x" * (1 << 20)
    for _ in range(megabytes):
        print(text)
        print(text, file=sys.stderr)
        os.write(1, text.encode())
        os.write(2, text.encode())
    return megabytes


def listen() -> str:
    """What the standard input says."""
    return sys.stdin.read() + os.read(0, 100).decode()


def recurse(depth: int = 0) -> int:
    return recurse(depth + 1)


def surroundings() -> dict[str, Any]:
    """Where the run finds itself."""
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "cwd": os.getcwd(),
        "umask": umask,
        "time": time.time(),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "zone": time.strftime("%z"),
        "executable": sys.executable,
        "imports": sys.path,
    }


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"
