"""What a tool sees besides its arguments: bound instance, context argument, context variables.

Two calls with equal arguments but other surroundings may have other results (`my_orders(ctx)` has an empty key), so
a run ahead serves a claim only if both had the same surroundings. What the frameworks themselves put into context
variables (spans, callbacks, run ids) changes with every call and says nothing about the user: it is left out.
"""

from __future__ import annotations

import contextvars
import decimal
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agentspec.runs import Place

_FRAMEWORK_PACKAGES = frozenset(
    {
        *("agents", "anyio", "crewai", "langchain", "langchain_core", "langgraph", "langsmith", "opentelemetry"),
        *("pydantic_ai", "pydantic_graph", "sniffio"),
    }
)
_FRAMEWORK_VARIABLES = frozenset(
    {"current_async_library_cvar", "numpy.ufunc.extobj", "_in_sync_callback", "include_content"}
)
_FRAMEWORK_PREFIX = "pydantic_ai."
_LANGCHAIN_CONFIG = "child_runnable_config"
_LANGCHAIN_INTERNAL = ("__pregel", "checkpoint", "langgraph_", "__")

_CONTEXT_TYPES = {
    ("agents", "RunContextWrapper"): "context",
    ("agents", "ToolContext"): "context",
    ("pydantic_ai", "RunContext"): "deps",
}
"""Context arguments of frameworks, by package and class, and the attribute that holds the user's own object."""

_INJECTED_TYPES = frozenset(
    {"InjectedState", "InjectedStore", "InjectedToolArg", "InjectedToolCallId", "ToolRuntime", "RunnableConfig"}
)


@dataclass(frozen=True, slots=True)
class Parameters:
    """Which parameters of a function the model does not give: the instance, the context argument, injected ones."""

    instance: str | None
    context: str | None
    injected: frozenset[str]

    @property
    def hidden(self) -> frozenset[str]:
        """All of them."""
        return self.injected | {name for name in (self.instance, self.context) if name}


def hidden_parameters(function: Callable[..., Any]) -> Parameters:
    """Find them by name (`self`) and by annotation (RunContextWrapper, InjectedState, …)."""
    names = list(inspect.signature(function).parameters)
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception:
        hints = {}
    instance = names[0] if names and names[0] in ("self", "cls") else None
    context = next((name for name in names if _context_attribute(hints.get(name)) is not None), None)
    injected = frozenset(name for name in names if _is_injected(hints.get(name)))
    return Parameters(instance, context, injected)


def _class_of(annotation: Any) -> Any:
    return typing.get_origin(annotation) or annotation


def _package(cls: Any) -> str:
    return str(getattr(cls, "__module__", "")).partition(".")[0]


def _context_attribute(annotation: Any) -> str | None:
    cls = _class_of(annotation)
    bases: tuple[Any, ...] = getattr(cls, "__mro__", (cls,))
    for base in bases:
        attribute = _CONTEXT_TYPES.get((_package(base), getattr(base, "__name__", "")))
        if attribute:
            return attribute
    return None


def _is_injected(annotation: Any) -> bool:
    if typing.get_origin(annotation) is typing.Annotated:
        return any(_is_injected(extra) for extra in typing.get_args(annotation))
    cls: Any = annotation if isinstance(annotation, type) else type(annotation)
    names = {base.__name__ for base in cls.__mro__}
    names.add(getattr(_class_of(annotation), "__name__", ""))
    return bool(names & _INJECTED_TYPES)


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """One call's surroundings, held so that the objects in it stay alive (and their identities unique)."""

    hidden: Mapping[str, Any]
    """The instance, context and injected arguments by parameter name."""
    variables: contextvars.Context
    """A copy of the context to run in."""
    place: Place | None = None
    """For a tool that runs ahead in another process: all that it sees of this one."""

    def same_as(self, other: Surroundings, parameters: Parameters) -> bool:
        """Whether a tool could tell the two apart."""
        if any(name not in other.hidden for name in self.hidden) or len(self.hidden) != len(other.hidden):
            return False
        if not all(_same_argument(self.hidden[name], other.hidden[name], name, parameters) for name in self.hidden):
            return False
        mine, theirs = _user_variables(self.variables), _user_variables(other.variables)
        return mine.keys() == theirs.keys() and all(_equal(mine[var], theirs[var]) for var in mine)


def _same_argument(one: Any, other: Any, name: str, parameters: Parameters) -> bool:
    if name == parameters.instance:
        return one is other
    if name == parameters.context:
        attribute = _context_attribute(type(one)) or ""
        return getattr(one, attribute, one) is getattr(other, attribute, other)
    return _equal(one, other)


def _user_variables(context: contextvars.Context) -> dict[contextvars.ContextVar[Any], Any]:
    found = {}
    for variable, value in context.items():
        attribute = _context_attribute(type(value))
        if attribute is not None:
            if (users := getattr(value, attribute, value)) is not None:
                found[variable] = users
        elif variable.name.endswith(_LANGCHAIN_CONFIG) and isinstance(value, Mapping):
            if configurable := _langchain_user_part(value):
                found[variable] = configurable
        elif not _says_nothing(variable.name, value):
            found[variable] = value
    return found


def _says_nothing(name: str, value: Any) -> bool:
    """A framework's own, or a default that a library sets in whichever thread first used it."""
    if isinstance(value, decimal.Context):
        return _same_arithmetic(value, decimal.DefaultContext)
    if name in _FRAMEWORK_VARIABLES or name.startswith(_FRAMEWORK_PREFIX):
        return True
    return _package(type(value)) in _FRAMEWORK_PACKAGES


def _same_arithmetic(one: decimal.Context, other: decimal.Context) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in ("prec", "rounding", "Emin", "Emax", "traps"))


def _langchain_user_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """LangChain hands its run configuration down in a variable; only `configurable` is the user's."""
    configurable = config.get("configurable")
    if not isinstance(configurable, Mapping):
        return {}
    return {k: v for k, v in configurable.items() if not str(k).startswith(_LANGCHAIN_INTERNAL)}


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, decimal.Context) and isinstance(other, decimal.Context):
        return _same_arithmetic(one, other)
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # an __eq__ of the user's that raises says nothing: not the same
        return False
