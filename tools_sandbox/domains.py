"""Which state a call depends on or changes: fixed names, or names that follow from its arguments."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentspec.effects import EVERYTHING
from agentspec.errors import ConfigError, ToolRefused

Domains = Iterable[str] | Callable[..., Iterable[str]]
"""Names, or a function of those of the call's arguments that it names: `lambda order_id: {f"order:{order_id}"}`."""


class DomainRule:
    """The domains of a call.

    Raises:
        ConfigError: one string instead of several, or something that is no name.
    """

    def __init__(self, what: str, domains: Domains | None) -> None:
        self._what = what
        self._function = domains if callable(domains) else None
        named = () if domains is None or callable(domains) else domains
        self.fixed = _names(what, named, ConfigError)

    @property
    def needs(self) -> frozenset[str]:
        """The arguments that the owner's function cannot do without."""
        if self._function is None:
            return frozenset()
        if isinstance(self._function, Templates):
            return self._function.fields
        wanted = inspect.signature(self._function).parameters.values()
        return frozenset(
            p.name for p in wanted if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        )

    @property
    def by_argument(self) -> bool:
        """Whether they differ from call to call."""
        return self._function is not None

    def of(self, arguments: Mapping[str, Any]) -> frozenset[str]:
        """The domains of the call with these validated arguments; empty means that none were named.

        Raises:
            ToolRefused: the owner's function raised, or returned what is no set of names.
        """
        if self._function is None:
            return self.fixed
        try:
            return _names(self._what, call_with_those_it_names(self._function, arguments), ToolRefused)
        except Exception as error:
            raise ToolRefused(f"{self._what}= of the tool failed: {error!r}") from error


def call_with_those_it_names(function: Callable[..., Any], available: Mapping[str, Any]) -> Any:
    """Call an owner's function with those of the tool's arguments that it names."""
    wanted = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in wanted.values()):
        return function(**available)
    return function(**{name: available[name] for name in wanted if name in available})


def from_templates(what: str, templates: Iterable[str]) -> Domains:
    """Domains as a file writes them: `order:{order_id}` follows the argument `order_id`.

    Raises:
        ConfigError: a template cannot be read.
    """
    names = _names(what, templates, ConfigError)
    try:
        parts = [part for name in names for part in string.Formatter().parse(name) if part[1] is not None]
    except ValueError as error:
        raise ConfigError(f"{what}: {error}; write for example order:{{order_id}}") from error
    for _, field, form, conversion in parts:
        if form or conversion or not str(field).isidentifier():
            raise ConfigError(f"{what}: {{{field}}} is no argument's name; write for example order:{{order_id}}")
    if not parts:
        return {name.format() for name in names}
    return Templates(names, frozenset(str(part[1]) for part in parts))


class Templates:
    """Names with `{argument}` in them; called with a call's arguments."""

    def __init__(self, names: frozenset[str], fields: frozenset[str]) -> None:
        self._names = names
        self.fields = fields

    def __call__(self, **arguments: Any) -> set[str]:
        return {name.format_map(arguments) for name in self._names}


def _names(what: str, domains: Iterable[str], error: type[Exception]) -> frozenset[str]:
    if isinstance(domains, str):
        raise error(f"{what}={domains!r} is one string; write {what}={{{domains!r}}}")
    try:
        found = frozenset(domains)
    except TypeError as wrong:
        raise error(f"{what}={domains!r}: write names of domains, {what}={{'orders'}}") from wrong
    if bad := [name for name in found if not isinstance(name, str) or not name]:
        raise error(f"{what}: {bad[0]!r} is no name of a domain")
    return found


def or_everything(domains: frozenset[str]) -> frozenset[str]:
    """No names means all state."""
    return domains or frozenset({EVERYTHING})
