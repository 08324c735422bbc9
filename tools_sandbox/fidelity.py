"""Does a tool in its sandbox give what it gives in the agent's process? Nothing is served before that was seen.

1. The first calls are run both ways and compared: the owner's `same_result=`, else equality of types and values.
2. One difference bars the tool from its sandbox, and says what differed.
3. Of what is served later, a small share is checked again, for ever.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

log = logging.getLogger("agentspec.fidelity")

SameResult = Callable[[Any, Any], bool]
"""The owner's comparison of the result of a run ahead and of a real call."""

CHECKS = 3
"""Equal results that are wanted before anything is served."""

RECHECKED_SHARE = 1 / 64


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    result: Any = None
    error: BaseException | None = None

    @property
    def interrupted(self) -> bool:
        """Whether something else ended it (Ctrl-C, a cancellation): it says nothing of the tool."""
        return self.error is not None and not isinstance(self.error, Exception)


class Fidelity:
    """What is known of one tool in one tier. Thread-safe."""

    def __init__(self, tool: str, tier: str, same_result: SameResult | None, *, needed: bool) -> None:
        self._tool = tool
        self._tier = tier
        self._same_result = same_result
        self._needed = needed
        self._lock = threading.Lock()
        self.equal = 0
        self.barred: str | None = None
        """What differed."""

    def renew_lock(self) -> None:
        """In a child process after a fork."""
        self._lock = threading.Lock()

    @property
    def proven(self) -> bool:
        """Whether enough was compared, and all of it equal."""
        return not self._needed or (self.barred is None and self.equal >= CHECKS)

    def wants_a_check(self) -> bool:
        """Whether the next result should be compared instead of served."""
        return self._needed and self.barred is None and (self.equal < CHECKS or random.random() < RECHECKED_SHARE)

    def compare(self, ahead: Ended, real: Ended, besides: str | None = None) -> str | None:
        """Compare a run ahead with the real call of the same state. `besides`: what else was found to differ.

        Returns:
            what differed, None where nothing did.
        """
        found = besides or self._difference(ahead, real)
        with self._lock:
            if found is None:
                self.equal += 1
            elif self.barred is None:
                self.barred = found
                log.warning("%s is barred from %s: %s", self._tool, self._tier, found)
        return found

    def _difference(self, ahead: Ended, real: Ended) -> str | None:
        if ahead.error is not None or real.error is not None:
            return difference(ahead.error, real.error, "exception")
        if self._same_result is None:
            return difference(ahead.result, real.result)
        try:
            same = bool(self._same_result(ahead.result, real.result))
        except Exception as error:
            return f"same_result= raised {error!r}"
        return None if same else "same_result= says that the results differ"


def difference(one: Any, other: Any, where: str = "result") -> str | None:
    """The first place where two results differ, in words; None where they are equal, types included."""
    found = None
    if type(one) is not type(other):
        found = _told(one, other, where)
    elif isinstance(one, Mapping):
        found = _mappings(one, other, where)
    elif isinstance(one, (list, tuple)):
        found = _sequences(one, other, where)
    elif isinstance(one, (set, frozenset)):
        found = None if _typed(one) == _typed(other) else _told(one, other, where)
    elif isinstance(one, BaseException):
        found = difference(one.args, other.args, f"{where}.args") or _mappings(vars(one), vars(other), where)
    elif one is not other:
        found = _objects(one, other, where)
    return found


def _told(one: Any, other: Any, where: str) -> str:
    return f"{where}: {_shown(one)} ahead, {_shown(other)} really"


def _sequences(one: Sequence[Any], other: Sequence[Any], where: str) -> str | None:
    if len(one) != len(other):
        return f"{where}: {len(one)} items ahead, {len(other)} really"
    return _first(difference(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True)))


def _mappings(one: Mapping[Any, Any], other: Mapping[Any, Any], where: str) -> str | None:
    if _typed(one) != _typed(other):
        return f"{where}: keys {sorted(map(repr, one.keys() ^ other.keys()))} on one side only, or of another type"
    return _first(difference(one[key], other[key], f"{where}[{key!r}]") for key in one)


def _typed(values: Iterable[Any]) -> set[tuple[type, Any]]:
    """Values that can be told from equal ones of another type."""
    return {(type(value), value) for value in values}


def _objects(one: Any, other: Any, where: str) -> str | None:
    """Two objects of one class: by what they hold where they are records, else by their own equality."""
    held = _held(one)
    if held is not None:
        return _mappings(held, _held(other) or {}, where)
    try:
        same = bool(one == other) or (one != one and other != other)  # noqa: PLR0124  (NaN is as good as NaN)
    except Exception:
        same = False
    return None if same else _told(one, other, where)


def _held(value: Any) -> dict[str, Any] | None:
    """The fields of a data class, a model, or an object that says nothing of its equality."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if isinstance(value, BaseModel):
        return {**vars(value), **(value.model_extra or {})}
    plain = getattr(type(value), "__eq__", None) is object.__eq__
    return vars(value) if plain and hasattr(value, "__dict__") else None


def _first(found: Iterable[str | None]) -> str | None:
    return next((text for text in found if text is not None), None)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
