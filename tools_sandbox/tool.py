"""A declared tool: the plain function, what its owner said of it, and what was learnt from its real calls."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import hashlib
import inspect
import os
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from agentspec.effects import EVERYTHING, Effect, ToolSpec
from agentspec.errors import ToolRefused
from agentspec.gating.averages import Quantile
from agentspec.keys import Arguments, Form, Keys
from agentspec.runs import Place
from agentspec.signature import Signature
from agentspec.tools_sandbox.domains import DomainRule, call_with_those_it_names, or_everything
from agentspec.tools_sandbox.environment import place_here
from agentspec.tools_sandbox.fidelity import Fidelity, SameResult
from agentspec.tools_sandbox.limits import Hedges, Limits
from agentspec.tools_sandbox.surroundings import Parameters, Surroundings, hidden_parameters

if TYPE_CHECKING:
    from agentspec.tools_sandbox.runtime import Runtime

ATTRIBUTE = "__agentspec_tool__"
"""Where a decorated function keeps its declaration."""

SameCall = Callable[[Mapping[str, Any], Mapping[str, Any]], bool]

DECLARED: weakref.WeakSet[DeclaredTool] = weakref.WeakSet()
"""Every tool declared in this process; `connect()` without a list offers all of them."""


RUNTIMES: weakref.WeakSet[Runtime] = weakref.WeakSet()
"""Every runtime of this process: a write makes reads stale in all of them, whoever offers the tools."""

FOLLOWERS: weakref.WeakSet[Runtime] = weakref.WeakSet()
"""The runtimes that offer all tools of the process, and want to hear of new ones."""


T = TypeVar("T")


WRITING = threading.Lock()
"""Held while a write or a runtime of this process begins: neither may miss the other."""

WRITES: set[Any] = set()
"""The writes of this process that are going on (`writing.Writing`)."""


def snapshot(items: weakref.WeakSet[T]) -> list[T]:
    """What is in a weak set right now, though other threads add to it meanwhile."""
    while True:
        with contextlib.suppress(RuntimeError):  # it changed size while it was read
            return list(items)


def enter(runtime: Any, *, follows: bool) -> None:
    """A runtime has begun; with `follows` it hears of tools that are declared from now on."""
    with WRITING:
        RUNTIMES.add(runtime)
        for write in WRITES:
            write.also_in(runtime)  # whose table is empty: nothing is voided
    if follows:
        FOLLOWERS.add(runtime)


def leave(runtime: Any) -> None:
    """A runtime has closed: no write concerns it any more."""
    RUNTIMES.discard(runtime)
    FOLLOWERS.discard(runtime)


@dataclass(frozen=True, slots=True)
class OwnersWord:
    """What only the owner's own functions can say of a tool; they stay where the tool is held."""

    reads: DomainRule
    writes: DomainRule
    identity: Callable[..., Any] | None = None
    same_call: SameCall | None = None
    same_result: SameResult | None = None


class DeclaredTool:
    """One tool under `@speculate`.

    Attributes:
        function: what the owner wrote.
        spec: the declaration, with the schema of the arguments that the model gives.
        runtimes: the runtimes that hold this tool; empty means plain calls.
        limits: its runs ahead, counted.
        hedges: its second runs, counted.
        fidelity: whether runs in its sandbox were seen to give what real calls give.
    """

    def __init__(
        self, function: Callable[..., Any], spec: ToolSpec, word: OwnersWord, signature: Keys | None = None
    ) -> None:
        self.function = function
        self.parameters: Parameters = hidden_parameters(function)
        self.signature: Keys = signature or Signature(function, self.parameters.hidden)
        self.spec = spec
        self.word = word
        self.limits = Limits(spec)
        self.hedges = Hedges()
        self.fidelity = Fidelity(spec.name, spec.sandbox.tier, word.same_result, needed=spec.sandbox.isolated)
        self.is_async = inspect.iscoroutinefunction(function)
        self.runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
        self.last_form = Form.PLAIN
        self._latencies = Quantile()
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        DECLARED.add(self)
        for runtime in snapshot(FOLLOWERS):
            runtime.tools_changed()

    def forget_runs(self) -> None:
        """In a child process after a fork: the runs ahead are the parent's, and its threads may have held our locks."""
        self.limits = Limits(self.spec)
        self.hedges = Hedges()
        self.fidelity.renew_lock()

    @functools.cached_property
    def seal(self) -> str:
        """Of the function's code."""
        return code_seal(self.function)

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        return self.spec.name

    def held_by(self, runtime: Any) -> None:
        """A runtime offers this tool from now on."""
        self.runtimes.add(runtime)

    def released_by(self, runtime: Any) -> None:
        """A runtime offers this tool no longer."""
        self.runtimes.discard(runtime)

    def surroundings(self, bound: Mapping[str, Any]) -> Surroundings:
        """The surroundings of a real call, from its bound arguments and the current context."""
        hidden = {name: bound[name] for name in self.parameters.hidden if name in bound}
        return Surroundings(hidden, contextvars.copy_context(), self.place())

    def place(self) -> Place | None:
        """What an isolated run of this tool would see of this process right now."""
        return place_here(self.spec.sandbox.env) if self.spec.sandbox.isolated else None

    def depends_on(self, arguments: Arguments) -> frozenset[str]:
        """The domains whose change makes a result of this call stale.

        Raises:
            ToolRefused: the owner's function failed.
        """
        if self.spec.effect is Effect.PURE:
            return frozenset()
        reads = self.word.reads.of(self._given(arguments))
        if self.spec.effect is Effect.READ or not reads:
            return or_everything(reads)
        return reads | or_everything(self.word.writes.of(self._given(arguments)))

    def touches(self, arguments: Arguments | None) -> frozenset[str]:
        """The domains that this real call changes; all of them where its arguments do not tell."""
        if self.spec.effect.changes_nothing:
            return frozenset()
        if not self.word.writes.by_argument:
            return or_everything(self.word.writes.fixed)
        try:
            return or_everything(self.word.writes.of(self._given(arguments)) if arguments else frozenset())
        except ToolRefused:
            return frozenset({EVERYTHING})

    def _given(self, arguments: Arguments) -> Mapping[str, Any]:
        return self.signature.with_defaults(arguments.validated)

    def owner(self, arguments: Arguments, surroundings: Surroundings) -> Any:
        """What the owner's `identity=` says of a call, evaluated in the call's own context.

        Raises:
            Exception: whatever the owner's function raises.
        """
        if self.word.identity is None:
            return None
        available = {**surroundings.hidden, **self._given(arguments)}
        return surroundings.variables.copy().run(call_with_those_it_names, self.word.identity, available)

    def same_surroundings(self, one: Surroundings, other: Surroundings) -> bool:
        """Whether two calls of this tool see the same world; with `identity=` the owner decides."""
        if self.spec.sandbox.isolated:
            return one.place == other.place
        if self.word.identity is not None:
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


def fingerprint(tool: Callable[..., Any] | str, spec: ToolSpec) -> str:
    """Changes when the tool's code or declaration does, and is the same in every process (16 hex digits).

    `tool` is its function, or a text that stands for one.
    """
    code = getattr(tool, "__code__", None)
    where = f"{getattr(tool, '__module__', '')}.{getattr(tool, '__qualname__', '')}"
    body = _stable(tool if code is None else code)
    text = f"{where}|{_stable(asdict(replace(spec, fingerprint='', parameters={})))}|{body}"
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def code_seal(function: Callable[..., Any]) -> str:
    """Tells whether two processes mean the same code (16 hex digits)."""
    code = getattr(function, "__code__", None)
    text = _stable(function if code is None else code) + _stable(getattr(function, "__defaults__", None))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _stable(value: Any) -> str:
    """A text of a constant, a code object or plain data that no hash seed and no address gets into."""
    if isinstance(value, types.CodeType):
        return f"code({value.co_code.hex()},{value.co_names},{_stable(value.co_consts)})"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_stable(item)}' for key, item in value.items())}}}"
    if isinstance(value, (frozenset, set)):
        return f"{{{','.join(sorted(map(_stable, value)))}}}"
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_stable, value))})"
    return repr(value)


def _after_fork_in_child() -> None:
    global WRITING
    WRITING = threading.Lock()
    WRITES.clear()
    for tool in snapshot(DECLARED):
        tool.forget_runs()


os.register_at_fork(after_in_child=_after_fork_in_child)
