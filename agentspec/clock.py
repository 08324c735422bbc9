"""The monotonic clock that turns, bets, claims and runs go by. A bench puts another in its place, and time is its own.

Waits for sockets, other processes and databases keep to the machine's own clock: nobody can make those go faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_read: Callable[[], float] = time.monotonic


def monotonic() -> float:
    """Seconds that never go back."""
    return _read()


@contextmanager
def replaced(read: Callable[[], float]) -> Iterator[None]:
    """Within the block, in all threads, `read` is the clock.

    >>> with replaced(lambda: 7.0):
    ...     monotonic()
    7.0
    """
    global _read
    before, _read = _read, read
    try:
        yield
    finally:
        _read = before
