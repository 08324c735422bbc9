"""A value that is made when it is needed, by whoever needs it: encoding it costs the event loop nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Later:
    """Made once, when first asked for, in that thread. What it is made from must not change meanwhile.

    `weight`: how many rows it is as heavy as, while it waits.

    >>> once = Later(lambda: "made")
    >>> once.value(), Later.of(once), Later.of(7)
    ('made', 'made', 7)
    """

    __slots__ = ("_make", "_value", "weight")

    def __init__(self, make: Callable[[], Any], weight: int = 0) -> None:
        self.weight = weight
        self._make: Callable[[], Any] | None = make
        self._value: Any = None

    def value(self) -> Any:
        """The value."""
        make = self._make
        if make is not None:
            self._value = make()
            self._make = None
        return self._value

    @staticmethod
    def of(value: Any) -> Any:
        """The value itself, or what it stands for."""
        return value.value() if isinstance(value, Later) else value
