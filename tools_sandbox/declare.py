"""`@speculate`: the owner's word that a tool may run ahead of time.

Put it *under* the framework's own decorator, on the plain function:

    @function_tool
    @speculate(effect="read", stable_for=30.0)
    def get_order(order_id: str) -> Order: ...
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar, overload

from agentspec.effects import Effect, ToolSpec
from agentspec.errors import ConfigError
from agentspec.signature import Signature
from agentspec.tools_sandbox.claiming import call_async, call_plainly
from agentspec.tools_sandbox.surroundings import hidden_parameters
from agentspec.tools_sandbox.tool import DeclaredTool, SameCall, fingerprint

P = ParamSpec("P")
R = TypeVar("R")

ATTRIBUTE = "__agentspec_tool__"
"""Where a decorated function keeps its declaration."""


@overload
def speculate(
    function: Callable[P, R],
    *,
    effect: str,
    reads: Iterable[str] = ...,
    writes: Iterable[str] = ...,
    stable_for: float | None = ...,
    identity: Callable[..., Any] | None = ...,
    egress: bool = ...,
    same_call: SameCall | None = ...,
    name: str | None = ...,
) -> Callable[P, R]: ...
@overload
def speculate(
    function: None = ...,
    *,
    effect: str,
    reads: Iterable[str] = ...,
    writes: Iterable[str] = ...,
    stable_for: float | None = ...,
    identity: Callable[..., Any] | None = ...,
    egress: bool = ...,
    same_call: SameCall | None = ...,
    name: str | None = ...,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def speculate(  # noqa: PLR0913  (the options of the contract, all by keyword)
    function: Callable[..., Any] | None = None,
    *,
    effect: str,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
    stable_for: float | None = None,
    identity: Callable[..., Any] | None = None,
    egress: bool = False,
    same_call: SameCall | None = None,
    name: str | None = None,
) -> Any:
    """Declare what a tool does, so that it may run before the agent asks for it.

    Without `agentspec.connect()`, or with the proxy gone, the function runs as it is.

    Args:
        effect: `pure` (depends on its arguments alone), `read` (changes nothing), `write` or `irreversible`
            (never run ahead outside a sandbox; makes overlapping reads stale).
        reads, writes: names of the state it depends on or changes; none means all of it.
        stable_for: seconds for which a result is good, counted from the start of its run; required for `read`.
        identity: called with those of the tool's arguments that it names; two calls whose values differ never
            share a result. It replaces the comparison of context arguments and context variables.
        egress: the arguments reach a third party, so a wrong guess would leak something: a higher bar.
        same_call: whether a predicted and a real call, as dicts of validated arguments, may share a result.
        name: the name that the model uses, where it is not the function's.

    Raises:
        ConfigError: the declaration contradicts itself, or this object cannot be declared.
    """
    _check_text_sets(reads=reads, writes=writes)

    def declare(target: Callable[..., Any]) -> Callable[..., Any]:
        _check_target(target)
        tool_name = name or target.__name__
        spec = ToolSpec(
            name=tool_name,
            effect=_effect(effect, tool_name),
            reads=frozenset(reads),
            writes=frozenset(writes),
            stable_for_s=stable_for,
            egress=egress,
        )
        return _wrap(DeclaredTool(target, _complete(spec, target), identity, same_call))

    return declare if function is None else declare(function)


def declared(function: Any) -> DeclaredTool:
    """The declaration behind a decorated function.

    Raises:
        ConfigError: it was not decorated with `@speculate`.
    """
    tool = getattr(function, ATTRIBUTE, None)
    if not isinstance(tool, DeclaredTool):
        raise ConfigError(f"{function!r} is not declared; put @speculate(effect=...) on it")
    return tool


def _wrap(tool: DeclaredTool) -> Callable[..., Any]:
    @functools.wraps(tool.function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await call_async(tool, args, kwargs)

    @functools.wraps(tool.function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return call_plainly(tool, args, kwargs)

    wrapper: Callable[..., Any] = awaited if tool.is_async else plain
    setattr(wrapper, ATTRIBUTE, tool)
    return wrapper


def _complete(spec: ToolSpec, target: Callable[..., Any]) -> ToolSpec:
    """Add the schema and the fingerprint, which need the function."""
    schema = Signature(target, hidden_parameters(target).hidden).json_schema()
    return replace(spec, parameters=schema, fingerprint=fingerprint(target, repr(spec)))


def _effect(effect: str, name: str) -> Effect:
    try:
        return Effect(effect)
    except ValueError:
        known = ", ".join(Effect)
        raise ConfigError(f"tool {name!r}: effect={effect!r} is unknown; it is one of {known}") from None


def _check_text_sets(**sets: Iterable[str]) -> None:
    for name, value in sets.items():
        if isinstance(value, str):
            raise ConfigError(f"{name}={value!r} is one string; write {name}={{{value!r}}}")


def _check_target(target: Any) -> None:
    """Refuse what cannot be handed over, and framework objects that would silently bypass us."""
    if isinstance(target, (staticmethod, classmethod, property)):
        raise ConfigError(f"put @speculate under @{type(target).__name__}, directly on the function")
    if hasattr(target, ATTRIBUTE):
        raise ConfigError(f"{target!r} is declared already")
    if not inspect.isfunction(target):
        kind = f"{type(target).__module__}.{type(target).__qualname__}"
        raise ConfigError(
            f"@speculate stands over a {kind}; put it under the framework's decorator, directly on the function"
        )
    if (owner := _registered_by(target)) is not None:
        raise ConfigError(
            f"tool {target.__name__!r} is registered with {owner} already, which would call it without us;"
            " put @speculate under the framework's decorator"
        )
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigError(
            f"tool {target.__name__!r} yields its result piece by piece; such a result cannot be handed over"
        )


def _registered_by(target: Callable[..., Any]) -> str | None:
    """The framework object that holds this function already, though its decorator gave the plain function back.

    pydantic-ai does that: a decorator of ours on top would be bypassed without a word.
    """
    if "pydantic_ai" not in sys.modules:
        return None
    for holder in gc.get_referrers(target):
        if type(holder).__module__.startswith("pydantic_ai"):
            return f"pydantic-ai's {type(holder).__name__}"
        if isinstance(holder, dict) and "function_schema" in holder and holder.get("function") is target:
            return "pydantic-ai"
    return None
