"""Background work in Python takes the interpreter from whoever relays tokens meanwhile: it is done with rests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_RESTS = 3.0
"""For so many times as long as a piece of work took the thread rests after it: a quarter of a core at most."""


def unhurried(things: Iterable[T], rest: Callable[[float], object]) -> Iterator[T]:
    """One thing after the other; after each `rest` is called with the seconds to rest before the next."""
    for thing in things:
        began_s = time.thread_time()
        yield thing
        rest(_RESTS * (time.thread_time() - began_s))
