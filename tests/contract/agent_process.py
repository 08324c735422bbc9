"""An agent in a process of its own, which does what its standard input says: one command a line, one answer a line.

python -m tests.contract.agent_process
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import agentspec
from agentspec import speculate
from tests.contract import importable


@speculate(effect="write", writes={"orders"})
def write_orders(order_id: str) -> None:
    _work(order_id)


@speculate(effect="write", writes={"users"})
def write_users(order_id: str) -> None:
    _work(order_id)


@speculate(effect="write", writes=lambda order_id: {f"order:{order_id}"})
def write_order(order_id: str) -> None:
    _work(order_id)


@speculate(effect="write")
def write_all(order_id: str) -> None:
    _work(order_id)


look_up = speculate(effect="read", stable_for=30.0, sandbox="process")(importable.look_up)

RUNTIME: Any = None
HOLD: dict[str, threading.Event] = {}


def _work(order_id: str) -> None:
    if (hold := HOLD.get(order_id)) is not None:
        print("writing", flush=True)
        hold.wait(20)


def begin(name: str, order_id: str) -> None:
    """Start a write that lasts until `end`."""
    HOLD[order_id] = threading.Event()
    threading.Thread(target=globals()[name], args=(order_id,), name=f"write-{order_id}", daemon=True).start()


def end(order_id: str) -> None:
    HOLD.pop(order_id).set()
    for thread in threading.enumerate():
        if thread.name == f"write-{order_id}":
            thread.join(20)
    print("ended", flush=True)


def write(name: str, order_id: str) -> None:
    globals()[name](order_id)
    print("written", flush=True)


def leave(how: str) -> None:
    if how == "exit":
        sys.exit(0)
    if how == "error":
        raise RuntimeError("the agent broke")
    os._exit(3)


def prove() -> None:
    """Run a tool plainly; it is run in its sandbox as well."""
    look_up("A")
    print("proven", flush=True)


def join(proxy: str, api_key: str, redis: str) -> None:
    """Be a runtime of this proxy, and share writes by this Redis."""
    global RUNTIME
    RUNTIME = agentspec.connect(proxy, api_key=api_key, redis=None if redis == "-" else redis, wait_s=5.0)
    print("connected" if RUNTIME.connected else "alone", flush=True)


def part() -> None:
    """Be nobody's."""
    RUNTIME.close()
    print("parted", flush=True)


COMMANDS: dict[str, Any] = {
    "join": join,
    "part": part,
    "begin": begin,
    "end": end,
    "write": write,
    "leave": leave,
    "prove": prove,
}


def main() -> None:
    for line in sys.stdin:
        name, *words = line.split()
        COMMANDS[name](*words)


if __name__ == "__main__":
    main()
