"""Writes look at every runtime of the process, though other threads connect and leave meanwhile."""

from __future__ import annotations

import threading
import weakref

from agentspec.tools_sandbox.tool import snapshot


class Thing:
    pass


def test_a_weak_set_can_be_read_while_others_add_to_it() -> None:
    items: weakref.WeakSet[Thing] = weakref.WeakSet()
    kept = [Thing() for _ in range(2_000)]
    done = threading.Event()

    def add() -> None:
        for thing in kept:
            items.add(thing)
        done.set()

    thread = threading.Thread(target=add)
    thread.start()
    while not done.is_set():
        snapshot(items)
    thread.join()
    assert set(snapshot(items)) == set(kept)
