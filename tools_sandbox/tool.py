"""A declared tool: the plain function, what its owner said of it, and what was learnt from its real calls."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import inspect
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from agentspec.averages import Quantile
from agentspec.effects import ToolSpec
from agentspec.signature import Arguments, Form, Signature
from agentspec.tools_sandbox.surroundings import Parameters, Surroundings, hidden_parameters

if TYPE_CHECKING:
    from agentspec.tools_sandbox.runtime import Runtime

SameCall = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]

DECLARED: weakref.WeakSet[DeclaredTool] = weakref.WeakSet()
"""Every tool declared in this process; `connect()` without a list offers all of them."""


RUNTIMES: weakref.WeakSet[Runtime] = weakref.WeakSet()
"""Every runtime of this process: a write makes reads stale in all of them, whoever offers the tools."""

FOLLOWERS: weakref.WeakSet[Runtime] = weakref.WeakSet()
"""The runtimes that offer all tools of the process, and want to hear of new ones."""


T = TypeVar("T")


def snapshot(items: weakref.WeakSet[T]) -> list[T]:
    """What is in a weak set right now, though other threads add to it meanwhile."""
    while True:
        with contextlib.suppress(RuntimeError):  # it changed size while it was read
            return list(items)


def enter(runtime: Any, *, follows: bool) -> None:
    """A runtime has begun; with `follows` it hears of tools that are declared from now on."""
    RUNTIMES.add(runtime)
    if follows:
        FOLLOWERS.add(runtime)


class DeclaredTool:
    """One tool under `@speculate`.

    Attributes:
        function: what the owner wrote.
        spec: the declaration, with the schema of the arguments that the model gives.
        runtimes: the runtimes that hold this tool; empty means plain calls.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        spec: ToolSpec,
        identity: Callable[..., Any] | None,
        same_call: SameCall | None,
    ) -> None:
        self.function = function
        self.parameters: Parameters = hidden_parameters(function)
        self.signature = Signature(function, self.parameters.hidden)
        self.spec = spec
        self.identity = identity
        self.same_call = same_call
        self.is_async = inspect.iscoroutinefunction(function)
        self.runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
        self.last_form = Form.PLAIN
        self._latencies = Quantile()
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        DECLARED.add(self)
        for runtime in snapshot(FOLLOWERS):
            runtime.tools_changed()

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        return self.spec.name

    def held_by(self, runtime: Any) -> None:
        """A runtime offers this tool from now on."""
        self.runtimes.add(runtime)

    def surroundings(self, bound: Mapping[str, Any]) -> Surroundings:
        """The surroundings of a real call, from its bound arguments and the current context."""
        hidden = {name: bound[name] for name in self.parameters.hidden if name in bound}
        return Surroundings(hidden, contextvars.copy_context())

    def owner(self, arguments: Arguments, surroundings: Surroundings) -> Any:
        """What the owner's `identity=` says of a call, evaluated in the call's own context.

        Raises:
            Exception: whatever the owner's function raises.
        """
        if self.identity is None:
            return None
        wanted = inspect.signature(self.identity).parameters
        available = {**surroundings.hidden, **arguments.validated}
        if any(p.kind is p.VAR_KEYWORD for p in wanted.values()):
            return surroundings.variables.copy().run(self.identity, **available)
        given = {name: available[name] for name in wanted if name in available}
        return surroundings.variables.copy().run(self.identity, **given)

    def same_surroundings(self, one: Surroundings, other: Surroundings) -> bool:
        """Whether two calls of this tool see the same world; with `identity=` the owner decides."""
        if self.identity is not None:
            name = self.parameters.instance
            return name is None or one.hidden.get(name) is other.hidden.get(name)
        return one.same_as(other, self.parameters)

    def call(self, arguments: Arguments, surroundings: Surroundings) -> Any:
        """Call the plain function as the agent would: its result, or a coroutine for an async tool."""
        given = arguments.raw if arguments.form is Form.RAW else arguments.validated
        args, kwargs = self.signature.positional({**surroundings.hidden, **given})
        return self.function(*args, **kwargs)

    def seen_running(self) -> None:
        """Note the loop that a real call of an async tool runs on."""
        if self.is_async:
            self._loop = weakref.ref(asyncio.get_running_loop())

    def running_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop it was last seen on, if that still runs."""
        loop = self._loop() if self._loop is not None else None
        return loop if loop is not None and loop.is_running() else None

    def took(self, latency_s: float) -> None:
        """Note how long a run took."""
        self._latencies.add(latency_s)

    def latency_q90_s(self) -> float | None:
        """90th percentile of its latency in seconds, None before the first run."""
        return self._latencies.at(0.9)


def fingerprint(function: Callable[..., Any], declaration: str) -> str:
    """Changes when the tool's code or declaration does (16 hex digits)."""
    code = getattr(function, "__code__", None)
    body = (
        code.co_code + repr(code.co_consts).encode("utf-8", "replace") if code is not None else repr(function).encode()
    )
    where = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}|{declaration}"
    return hashlib.blake2b(where.encode() + body, digest_size=8).hexdigest()
