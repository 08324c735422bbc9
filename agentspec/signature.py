"""Canonical keys of real calls, from a function's signature.

Predictions are JSON; claims arrive as models, enums and datetimes, by position or by name. One pydantic
`TypeAdapter`, built from the signature, brings both to the same validated arguments and the same canonical text.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import inspect
import ipaddress
import pathlib
import re
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal, NotRequired

from pydantic import (
    BaseModel,
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict  # pydantic refuses typing's before Python 3.12

from agentspec.calls import canonical_json
from agentspec.errors import ConfigError, ToolRefused
from agentspec.keys import Arguments, Form


class Signature:
    """A function's parameters, less those in `hidden` (context, bound instance), as one validator. Implements `Keys`.

    Raises:
        ConfigError: a parameter has a type that cannot be validated from JSON, or is `*args`.
    """

    def __init__(self, function: Callable[..., Any], hidden: frozenset[str] = frozenset()) -> None:
        self.name = getattr(function, "__name__", repr(function))
        self._signature = inspect.signature(function)
        self._hidden = hidden
        self._defaults: dict[str, Any] = {}
        self._extra: str | None = None
        hints = _hints(function)
        self._adapter: TypeAdapter[Any] = self._build(hints)
        self._validated_defaults = {k: _validated_default(hints.get(k, Any), v) for k, v in self._defaults.items()}

    def _build(self, hints: Mapping[str, Any]) -> TypeAdapter[Any]:
        fields: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            if parameter.name in self._hidden:
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise ConfigError(f"tool {self.name!r}: *{parameter.name} cannot be keyed; name its arguments")
            if parameter.kind is parameter.VAR_KEYWORD:
                self._extra = parameter.name
                continue
            kind = hints.get(parameter.name, Any)
            if parameter.default is not parameter.empty:
                self._defaults[parameter.name] = _field_default(parameter.default)
                fields[parameter.name] = NotRequired[kind]
            else:
                fields[parameter.name] = kind
        extra: Literal["allow", "forbid"] = "allow" if self._extra else "forbid"
        shape: Any = TypedDict("Arguments", fields)  # type: ignore[misc]
        setattr(shape, "__pydantic_config__", ConfigDict(extra=extra))  # noqa: B010  (mypy knows no such attribute)
        try:
            return TypeAdapter(shape)
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            first = str(error).splitlines()[0]
            raise ConfigError(f"tool {self.name!r}: an argument's type cannot come from JSON: {first}") from error

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments, with defaults where they are JSON.

        Raises:
            ConfigError: an argument's type has no place in JSON.
        """
        try:
            schema = self._adapter.json_schema()
        except PydanticInvalidForJsonSchema as error:
            first = str(error).splitlines()[0]
            raise ConfigError(f"tool {self.name!r}: an argument's type cannot come from JSON: {first}") from error
        for name in self._defaults:
            try:
                value = self._adapter.dump_python({name: self._defaults[name]}, mode="json", warnings=False)[name]
                canonical_json(value)
            except Exception:  # a default that is no JSON has no place in the schema
                continue
            schema.get("properties", {}).get(name, {})["default"] = value
        return schema

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments by name, hidden ones included, defaults applied.

        Raises:
            TypeError: they do not fit the signature.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        if self._extra:
            arguments.update(arguments.pop(self._extra, {}))
        return {k: _field_default(v) for k, v in arguments.items()}

    def with_defaults(self, validated: Mapping[str, Any]) -> dict[str, Any]:
        """Validated arguments, and the defaults of those that were left out."""
        return {**self._validated_defaults, **validated}

    def positional(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The same arguments as `args` and `kwargs`, for functions that take some by position only."""
        args: list[Any] = []
        kwargs = dict(arguments)
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(kwargs.pop(parameter.name, parameter.default))
        return args, kwargs

    def of_claim(self, bound: Mapping[str, Any]) -> Arguments:
        """The canonical form of a real call, from what `bind` returned.

        Raises:
            ToolRefused: the values do not validate or have no JSON form: such a call has no key.
        """
        given = {name: value for name, value in bound.items() if name not in self._hidden}
        if not _may_be_read_again(given):
            raise ToolRefused(f"{self.name}: an argument can be read only once, or is of a kind that has no key")
        return self._arguments(given)

    def of_prediction(self, arguments: Mapping[str, Any], preferred: Form = Form.TYPED) -> Arguments:
        """The canonical form of a predicted call. `preferred` is how this tool was last called, where it matters.

        Raises:
            ToolRefused: an unknown or missing argument, or one of a wrong type.
        """
        for name in self._hidden.intersection(arguments):
            raise ToolRefused(f"{self.name}: {name} is not the model's to give")
        found = self._arguments(dict(arguments))
        if found.form is Form.PLAIN:
            return found
        return dataclasses.replace(found, form=Form.TYPED if preferred is Form.PLAIN else preferred)

    def values(self, arguments: Mapping[str, Any], form: Form) -> dict[str, Any]:
        """The values to call with, for arguments that `of_prediction` has taken elsewhere.

        Raises:
            ToolRefused: as there.
        """
        if form is not Form.RAW:
            return self._validate(self._given(arguments))
        read = self.of_prediction(arguments, form)
        return read.raw if read.form is Form.RAW else read.validated

    def _given(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Without those that equal their defaults."""
        return {k: v for k, v in raw.items() if k not in self._defaults or not _same_values(v, self._defaults[k])}

    def _arguments(self, raw: dict[str, Any]) -> Arguments:
        raw = self._given(raw)
        validated = {k: v for k, v in self._validate(raw).items() if not self._is_default(k, v)}
        given = {k: v for k, v in raw.items() if k in validated}
        return Arguments(self._key(validated), _form(given, validated), validated, given)

    def _is_default(self, name: str, validated: Any) -> bool:
        return name in self._validated_defaults and _same_values(validated, self._validated_defaults[name])

    def _validate(self, raw: dict[str, Any]) -> dict[str, Any]:
        try:
            validated: dict[str, Any] = self._adapter.validate_python(raw)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ToolRefused(f"{self.name}: argument {where}: {first['msg']}") from error
        return validated

    def _key(self, validated: dict[str, Any]) -> str:
        try:
            return canonical_json(self._adapter.dump_python(_ordered(validated), mode="json", warnings=False))
        except Exception as error:  # whatever a custom serializer raises
            raise ToolRefused(f"{self.name}: the arguments have no JSON form: {error}") from error


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # a name in an annotation that does not resolve
        name = getattr(function, "__name__", repr(function))
        raise ConfigError(f"tool {name!r}: its annotations do not resolve: {error}") from error


def _field_default(value: Any) -> Any:
    """`x: int = Field(3)` means 3."""
    return value.get_default(call_default_factory=True, validated_data={}) if isinstance(value, FieldInfo) else value


def _validated_default(kind: Any, default: Any) -> Any:
    """What validation makes of a default; the default itself where it does not fit its type (`x: str = None`)."""
    try:
        return TypeAdapter(kind).validate_python(copy.deepcopy(default))
    except Exception:
        return default


_VALUES = (
    *(str, bytes, int, float, bool, type(None), enum.Enum, datetime.date, datetime.time, datetime.timedelta),
    *(datetime.tzinfo, decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath, re.Pattern),
    *(ipaddress.IPv4Address, ipaddress.IPv6Address),
)


def _may_be_read_again(value: Any) -> bool:
    """Whether validation leaves a value as it found it. Generators, iterators and open files are the tool's to read."""
    if isinstance(value, _VALUES):
        return True
    if isinstance(value, dict):
        return all(_may_be_read_again(item) for pair in value.items() for item in pair)
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_may_be_read_again, value))
    if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        return all(map(_may_be_read_again, vars(value).values())) if hasattr(value, "__dict__") else False
    return type(value).__module__.partition(".")[0] in ("pydantic", "pydantic_core")


def _ordered(value: Any) -> Any:
    """The same with sets as sorted lists: equal sets come in any order."""
    if isinstance(value, (set, frozenset)):
        return sorted((_ordered(item) for item in value), key=lambda item: (type(item).__name__, repr(item)))
    if type(value) is dict:
        return {k: _ordered(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return [_ordered(item) for item in value]
    return value


def _form(raw: Any, validated: Any) -> Form:
    if _same_values(raw, validated):
        return Form.PLAIN if _is_json(raw) else Form.TYPED
    return Form.RAW


def _same_values(raw: Any, validated: Any) -> bool:
    """Whether validation left the values as they were; an int where a float is meant counts as left."""
    if isinstance(raw, dict) and isinstance(validated, dict):
        return raw.keys() == validated.keys() and all(_same_values(raw[k], validated[k]) for k in raw)
    if isinstance(raw, list) and isinstance(validated, list):
        return len(raw) == len(validated) and all(map(_same_values, raw, validated))
    if type(raw) is int and type(validated) is float:
        return raw == validated
    return type(raw) is type(validated) and bool(raw == validated)


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(k) is str and _is_json(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or type(value) in (str, int, float, bool)
