"""What makes two calls of one tool the same call: the canonical form of their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from agentspec.calls import canonical_json
from agentspec.errors import ToolRefused


class Form(StrEnum):
    """How a call hands its arguments over; a run only serves a claim of the same form."""

    PLAIN = "plain"
    """JSON values that validation leaves as they are."""
    TYPED = "typed"
    """Validated objects (models, enums, datetimes), as frameworks pass them."""
    RAW = "raw"
    """JSON values where validation would make objects, or strings where it would make numbers."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A call's arguments less those that equal their defaults: canonical, as validated values and as they came."""

    key: str
    form: Form
    validated: dict[str, Any]
    raw: dict[str, Any]


class Keys(Protocol):
    """How the calls of one tool are told apart."""

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of a real call by name, defaults applied.

        Raises:
            TypeError: they do not fit.
        """
        ...

    def of_claim(self, bound: Mapping[str, Any]) -> Arguments:
        """The canonical form of a real call.

        Raises:
            ToolRefused: such a call has no key.
        """
        ...

    def of_prediction(self, arguments: Mapping[str, Any], preferred: Form = Form.TYPED) -> Arguments:
        """The canonical form of a predicted call.

        Raises:
            ToolRefused: it does not fit.
        """
        ...

    def with_defaults(self, validated: Mapping[str, Any]) -> dict[str, Any]:
        """Validated arguments, and the defaults of those that were left out."""
        ...

    def positional(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The same arguments as `args` and `kwargs`."""
        ...


class SchemaKeys:
    """Keys of a tool that is known by its JSON Schema alone, as MCP servers describe theirs. Implements `Keys`.

    What a server makes of an omitted argument is its own business, so an omitted one is not its default here.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if args:
            raise TypeError(f"{self._name} takes its arguments by name")
        return dict(kwargs)

    def of_claim(self, bound: Mapping[str, Any]) -> Arguments:
        return self._arguments(bound)

    def of_prediction(self, arguments: Mapping[str, Any], preferred: Form = Form.TYPED) -> Arguments:
        return self._arguments(arguments)

    def _arguments(self, given: Mapping[str, Any]) -> Arguments:
        try:
            return Arguments(canonical_json(given), Form.PLAIN, dict(given), dict(given))
        except (TypeError, ValueError) as error:
            raise ToolRefused(f"{self._name}: the arguments are no JSON: {error}") from error

    def with_defaults(self, validated: Mapping[str, Any]) -> dict[str, Any]:
        return dict(validated)

    def positional(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        return [], arguments
