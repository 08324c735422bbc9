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
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ParamSpec, Required, TypedDict, TypeVar, Unpack, overload

from agentspec.calls import canonical_json
from agentspec.effects import Effect, ToolSpec
from agentspec.errors import ConfigError
from agentspec.sandbox import IN_THREAD, Sandbox, sandbox_of
from agentspec.signature import Signature
from agentspec.tools_sandbox.claiming import call_async, call_plainly
from agentspec.tools_sandbox.domains import DomainRule, Domains
from agentspec.tools_sandbox.fidelity import SameResult
from agentspec.tools_sandbox.surroundings import hidden_parameters
from agentspec.tools_sandbox.tool import ATTRIBUTE, DeclaredTool, OwnersWord, SameCall, fingerprint

P = ParamSpec("P")
R = TypeVar("R")


class Options(TypedDict, total=False):
    """What an owner may say of a tool. `effect` is all that is needed for `pure`, `write` and `irreversible`.

    Attributes:
        effect: `pure` (depends on its arguments alone), `read` (changes nothing), `write` or `irreversible`. A
            `write` runs ahead in the sandbox `overlay` only, an `irreversible` never; both make reads stale.
        reads, writes: names of the state it depends on or changes, or a function of those of its arguments that it
            names: `reads=lambda order_id: {f"order:{order_id}"}`. None means all state.
        stable_for: seconds for which a result is good, counted from the start of its run; required for `read`.
        identity: called with those of the tool's arguments that it names; two calls whose values differ never
            share a result. It replaces the comparison of context arguments and context variables.
        egress: the arguments reach a third party, so a wrong guess would leak something: a higher bar, and a budget.
        needs_approval: a human has a say in every call: never run ahead.
        ahead: False switches running ahead off, and keeps the rest of the declaration.
        timeout_s: seconds after which a run ahead is given up.
        max_inflight: runs ahead that may go on at once.
        rate: runs ahead that may start in a second.
        same_call: whether a predicted and a real call, as dicts of validated arguments, may share a result.
        same_result: for a sandbox: whether the results of a run ahead and of a real call are the same.
        sandbox: where it runs ahead: `thread`, `process`, or `agentspec.Sandbox(...)`.
        name: the name that the model uses, where it is not the function's.
    """

    effect: Required[str]
    reads: Domains
    writes: Domains
    stable_for: float | None
    identity: Callable[..., Any] | None
    egress: bool
    needs_approval: bool
    ahead: bool
    timeout_s: float | None
    max_inflight: int | None
    rate: float | None
    same_call: SameCall | None
    same_result: SameResult | None
    sandbox: Sandbox | str
    name: str | None


@overload
def speculate(function: Callable[P, R], **options: Unpack[Options]) -> Callable[P, R]: ...
@overload
def speculate(function: None = ..., **options: Unpack[Options]) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def speculate(function: Callable[..., Any] | None = None, **options: Unpack[Options]) -> Any:
    """Declare what a tool does, so that it may run before the agent asks for it.

    Without `agentspec.connect()`, or with the proxy gone, the function runs as it is. `Options` says what may be
    declared.

    Raises:
        ConfigError: the declaration contradicts itself, or this object cannot be declared.
    """
    if unknown := options.keys() - Options.__annotations__.keys():
        known = ", ".join(Options.__annotations__)
        raise ConfigError(f"@speculate knows no {sorted(unknown)[0]}=; it knows {known}")
    if "effect" not in options:
        raise ConfigError(f"@speculate needs effect=; it is one of {', '.join(Effect)}")
    word = _word(options)

    def declare(target: Callable[..., Any]) -> Callable[..., Any]:
        _check_target(target)
        spec = _spec(options, options.get("name") or target.__name__, word)
        _check_isolated(target, spec, word)
        _check_arguments(target, spec, word)
        return _wrap(DeclaredTool(target, _complete(spec, target), word))

    return declare if function is None else declare(function)


def _word(options: Options) -> OwnersWord:
    return OwnersWord(
        reads=DomainRule("reads", options.get("reads", ())),
        writes=DomainRule("writes", options.get("writes", ())),
        identity=options.get("identity"),
        same_call=options.get("same_call"),
        same_result=options.get("same_result"),
    )


def _spec(options: Options, name: str, word: OwnersWord) -> ToolSpec:
    effect = _effect(options["effect"], name)
    if effect is Effect.PURE and (word.reads.by_argument or word.writes.by_argument):
        raise ConfigError(f'tool {name!r}: effect="pure" depends on nothing; drop reads/writes or declare it "read"')
    if effect is Effect.READ and word.writes.by_argument:
        raise ConfigError(f'tool {name!r}: effect="read" cannot have writes; declare it "write"')
    return ToolSpec(
        name=name,
        effect=effect,
        reads=word.reads.fixed,
        writes=word.writes.fixed,
        stable_for_s=options.get("stable_for"),
        egress=options.get("egress", False),
        needs_approval=options.get("needs_approval", False),
        ahead=options.get("ahead", True),
        timeout_s=options.get("timeout_s"),
        max_inflight=options.get("max_inflight"),
        rate_per_s=options.get("rate"),
        sandbox=sandbox_of(options.get("sandbox", IN_THREAD)),
    )


def declaration(options: Options, name: str, parameters: dict[str, Any]) -> tuple[ToolSpec, OwnersWord]:
    """The declaration of a tool that is no Python function, described by its JSON Schema.

    Raises:
        ConfigError: it contradicts itself.
    """
    word = _word(options)
    spec = _spec(options, name, word)
    if spec.sandbox.isolated:
        raise ConfigError(f"tool {name!r}: only Python functions can run in a sandbox of ours")
    return replace(spec, parameters=parameters, fingerprint=fingerprint(canonical_json(parameters), spec)), word


def _check_arguments(target: Callable[..., Any], spec: ToolSpec, word: OwnersWord) -> None:
    """Domains that follow arguments which the tool has not would never be known."""
    parameters = inspect.signature(target).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for what, rule in (("reads", word.reads), ("writes", word.writes)):
        if strange := sorted(rule.needs - parameters.keys()):
            known = ", ".join(parameters) or "none"
            raise ConfigError(f"tool {spec.name!r}: {what} needs {strange[0]!r}, which is no argument of it ({known})")


def _check_isolated(target: Callable[..., Any], spec: ToolSpec, word: OwnersWord) -> None:
    """Another process must be able to find the function, and its world must not be this one's."""
    if not spec.sandbox.isolated:
        return
    where, place = f"tool {spec.name!r}", spec.sandbox.isolation
    if hidden := hidden_parameters(target).hidden:
        raise ConfigError(
            f'{where}: sandbox "{place}" cannot give it {sorted(hidden)[0]!r}, an object of this process;'
            " let a plain function take what it needs as arguments"
        )
    if word.identity is not None:
        raise ConfigError(f'{where}: identity= is about this process; in sandbox "{place}" the arguments must tell')
    if target.__module__ == "__main__" or "<locals>" in target.__qualname__:
        raise ConfigError(f'{where}: sandbox "{place}" imports it by name; move it to the top level of a module')


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
    return replace(spec, parameters=schema, fingerprint=fingerprint(target, spec))


def _effect(effect: str, name: str) -> Effect:
    try:
        return Effect(effect)
    except ValueError:
        known = ", ".join(Effect)
        raise ConfigError(f"tool {name!r}: effect={effect!r} is unknown; it is one of {known}") from None


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
    if "pydantic_ai" not in sys.modules or sys.getrefcount(target) <= _HELD_BY_NOBODY:
        return None  # to look for its holders means to look through all objects of the process
    for holder in gc.get_referrers(target):
        if type(holder).__module__.startswith("pydantic_ai"):
            return f"pydantic-ai's {type(holder).__name__}"
        if isinstance(holder, dict) and "function_schema" in holder and holder.get("function") is target:
            return "pydantic-ai"
    return None


def _references(target: Callable[..., Any]) -> int:
    """References to a function, as many calls deep as `_registered_by` is below the decorator."""
    return _references_below(target)


def _references_below(target: Callable[..., Any]) -> int:
    return sys.getrefcount(target)


_HELD_BY_NOBODY = _references(lambda: None) + 1
"""References to a function that only its definition, or one variable, holds. pydantic-ai adds two at least."""
