"""Tool calls and their canonical form: when are two sets of JSON arguments the same call?

Same means: equal after omitted arguments took their schema's defaults, and numbers took their schema's type
(3 = 3.0 where the schema says `number`). Nothing else: a trailing space makes another call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

JsonSchema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool's name and its arguments as parsed JSON; `id` is what the endpoint called it, if anything."""

    name: str
    arguments: dict[str, Any]
    id: str | None = None


def canonical_json(value: Any) -> str:
    """One text for one JSON value: keys sorted, no white space, ASCII only (so lone surrogates can travel too).

    Raises:
        TypeError, ValueError: the value is not JSON.

    >>> canonical_json({"b": 1, "a": "x"})
    '{"a":"x","b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def same_call(one: ToolCall, other: ToolCall, schema: JsonSchema | None = None) -> bool:
    """Whether two calls are the same by the rules of this module, given the tool's parameter schema."""
    return one.name == other.name and canonical_arguments(one.arguments, schema) == canonical_arguments(
        other.arguments, schema
    )


def canonical_arguments(arguments: Mapping[str, Any], schema: JsonSchema | None = None) -> str:
    """The canonical text of a call's arguments under a JSON Schema.

    >>> schema = {"properties": {"n": {"type": "number"}, "unit": {"type": "string", "default": "kg"}}}
    >>> canonical_arguments({"n": 3}, schema)
    '{"n":3.0,"unit":"kg"}'
    """
    return canonical_json(_normalise(dict(arguments), schema or {}, schema or {}))


def _normalise(value: Any, schema: JsonSchema, root: JsonSchema) -> Any:
    schema = _resolve(schema, value, root)
    if isinstance(value, dict):
        properties = _schema(schema.get("properties"))
        filled = {name: sub["default"] for name, sub in properties.items() if "default" in _schema(sub)}
        loose = schema.get("additionalProperties")
        return {k: _normalise(v, _schema(properties.get(k, loose)), root) for k, v in {**filled, **value}.items()}
    if isinstance(value, list):
        items = _schema(schema.get("items"))
        return [_normalise(item, items, root) for item in value]
    return _normalise_number(value, schema.get("type"))


def _schema(value: Any) -> JsonSchema:
    """A sub-schema; `true`, `false` and malformed ones say nothing that we use."""
    return value if isinstance(value, Mapping) else {}


def _normalise_number(value: Any, kind: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    kinds = kind if isinstance(kind, list) else [kind]
    if "number" in kinds and isinstance(value, int):
        try:
            return float(value)
        except OverflowError:
            return value
    if "integer" in kinds and "number" not in kinds and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _resolve(schema: JsonSchema, value: Any, root: JsonSchema) -> JsonSchema:
    """Follow `$ref` and pick the only branch of `anyOf`/`oneOf` that fits the value's JSON type."""
    for _ in range(16):  # a schema may refer to itself
        reference = schema.get("$ref")
        if isinstance(reference, str):
            schema = _lookup(reference, root)
            continue
        branches = schema.get("anyOf") or schema.get("oneOf")
        if not isinstance(branches, list):
            break
        fitting = [branch for branch in branches if isinstance(branch, dict) and _fits(branch, value, root)]
        if len(fitting) != 1:
            return {}
        schema = fitting[0]
    return schema


def _lookup(reference: str, root: JsonSchema) -> JsonSchema:
    found: Any = root
    for step in reference.removeprefix("#").split("/"):
        if step:
            found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def _fits(schema: JsonSchema, value: Any, root: JsonSchema) -> bool:
    if "$ref" in schema:
        schema = _lookup(str(schema["$ref"]), root)
    wanted = schema.get("type")
    if wanted is None:
        return True
    names = wanted if isinstance(wanted, list) else [wanted]
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _JSON_TYPES.get(name, ())) for name in names)


class JsonCloser:
    """Tells when a JSON object that arrives in fragments has closed (sans-IO, one pass, no parsing).

    >>> closer = JsonCloser()
    >>> closer.feed('{"a": "}')
    False
    >>> closer.feed('"}')
    True
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "closed", "end")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.closed = False
        self.end = 0
        """Characters read up to and with the closing brace."""

    def feed(self, fragment: str) -> bool:
        """Take the next fragment; True as soon as the outermost object has closed."""
        if self.closed:
            return True
        skip = int(self._escaped and bool(fragment))
        self._escaped = self._escaped and not fragment
        for mark in _MARKS.finditer(fragment, skip):
            position = mark.start()
            if position < skip:
                continue  # escaped
            if mark[0] == "\\" and self._in_string:
                skip = position + 2
                self._escaped = skip > len(fragment)
            elif self._closes(mark[0]):
                self.end += position + 1
                return True
        self.end += len(fragment)
        return False

    def _closes(self, mark: str) -> bool:
        if mark == '"':
            self._in_string = not self._in_string
        elif not self._in_string and mark in "{[":
            self._depth += 1
        elif not self._in_string and mark in "}]":
            self._depth -= 1
            self.closed = self._depth == 0
        return self.closed


_MARKS = re.compile(r'["\\{}\[\]]')


def parse_arguments(text: str) -> dict[str, Any] | None:
    """A call's arguments as a dict, None where the text is no JSON object; no text at all means no arguments."""
    if not text.strip():
        return {}
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
