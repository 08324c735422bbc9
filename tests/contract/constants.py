"""Tools whose code holds constants that hash seeds and addresses could get into."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any


class Unit(enum.Enum):
    KG = "kg"


def with_a_set(key: str) -> bool:
    return key in {"alpha", "beta", "gamma", "delta", "epsilon"}


def with_a_nested_set(key: str) -> list[bool]:
    def inside(word: str) -> bool:
        return word in {"eins", "zwei", "drei", "vier", "fünf"}

    return [inside(word) for word in key.split() if word not in {"ja", "nein", "doch"}]


def with_defaults(key: str, kinds: frozenset[str] = frozenset("abcdefgh"), unit: Unit = Unit.KG) -> str:
    return f"{key} {sorted(kinds)} {unit}"


def with_keyword_defaults(key: str, *, many: tuple[str, ...] = ("a", "b"), limit: int = 3) -> str:
    return f"{key} {many} {limit}"


def with_a_lambda(key: str) -> Callable[..., Any]:
    return lambda: (key, 1.5, None, b"x", ..., -1)


TOOLS = [with_a_set, with_a_nested_set, with_defaults, with_keyword_defaults, with_a_lambda]
