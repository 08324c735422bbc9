"""Arguments that are to be filled: what their schema and their past say of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from agentspec.memory.reading import RECORD, RECORDS, SCALAR, SCALARS

_TYPES = {"string": 1, "integer": 2, "number": 3, "boolean": 4, "array": 5, "object": 6}
_NAME = re.compile(r"[A-Za-z_]{1,40}\d?")
_WORDS = re.compile(r"[a-z]+|[A-Z][a-z]*|\d+")


@dataclass(frozen=True, slots=True)
class Slot:
    """An argument of a tool; `schema`: its JSON Schema, {} where there is none."""

    tool: str
    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    path: str = field(init=False)
    wanted: int = field(init=False)
    """Number of the JSON type that the schema wants, 0 where it does not say."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", f"{self.tool}.{self.name}")
        object.__setattr__(self, "wanted", _TYPES.get(_type_of(self.schema), 0))

    @property
    def members(self) -> list[Any]:
        """Values that the schema names: the members of an enumeration, true and false."""
        schemas = [self.schema, *_branches(self.schema)]
        found = [value for one in schemas for value in _listed(one.get("enum"))]
        return [*found, True, False] if self.wanted == 4 else found

    def form(self, seen: Counter[int]) -> int:
        """The form of its values, by what was seen or else by the schema."""
        if seen:
            return seen.most_common(1)[0][0]
        if self.wanted == 5:
            items = self.schema.get("items")
            return RECORDS if isinstance(items, Mapping) and ("properties" in items or "$ref" in items) else SCALARS
        return RECORD if self.wanted == 6 else SCALAR


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def _branches(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    branches = schema.get("anyOf") or schema.get("oneOf") or []
    return [one for one in _listed(branches) if isinstance(one, Mapping)]


def _type_of(schema: Mapping[str, Any]) -> str:
    for one in (schema, *_branches(schema)):
        kind = one.get("type")
        for name in kind if isinstance(kind, list) else [kind]:
            if isinstance(name, str) and name != "null":
                return name
    return ""


def form_of(value: Any) -> int:
    """The form of a value."""
    if isinstance(value, dict):
        return RECORD
    if not isinstance(value, list):
        return SCALAR
    return RECORDS if value and all(isinstance(item, dict) for item in value) else SCALARS


@lru_cache(maxsize=200_000)
def likeness(name: str, argument: str) -> int:
    """How alike two names are: 3 equal, 2 one ends in the other's words, 1 they share a word, 0 not at all."""
    if name == argument.lower():
        return 3
    one, other = words_of(name), words_of(argument)
    if not one or not other:
        return 0
    shorter, longer = sorted((one, other), key=len)
    if longer[-len(shorter) :] == shorter:
        return 2
    return 1 if set(one) & set(other) else 0


@lru_cache(maxsize=50_000)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, without the s of a plural: `reservationIds` -> reservation, id."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return tuple((word[:-1] if len(word) > 2 and word[-1] == "s" else word)[:8] for word in words)


def is_name(key: str, schema: Mapping[str, Any]) -> bool:
    """Whether a key is a name that anybody may see: one of the schema's, or without a schema one that looks like it.

    Other keys are data: a map from order numbers to prices has none that another end user should be offered.
    """
    properties = schema.get("properties")
    return key in properties if isinstance(properties, Mapping) and properties else _NAME.fullmatch(key) is not None


def project(value: Any, keys: Sequence[str]) -> Any:
    """A record, or each of a list of records, with these fields only; None where one lacks a field."""
    if isinstance(value, list):
        items = [project(item, keys) for item in value]
        return None if any(item is None for item in items) else items
    if not isinstance(value, dict) or any(key not in value for key in keys):
        return None
    return {key: value[key] for key in keys}
