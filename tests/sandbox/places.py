"""The places that the conformance suite runs in: every tier, through the same few words."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pydantic
import pytest

from agentspec.effects import Effect, ToolSpec
from agentspec.errors import ToolRefused
from agentspec.keys import Form, SchemaKeys
from agentspec.runs import Order, Run, Work
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.capabilities import missing_tiers
from agentspec.tools_sandbox.domains import DomainRule
from agentspec.tools_sandbox.environment import place_here
from agentspec.tools_sandbox.tiers.overlay_tier import OverlayTier
from agentspec.tools_sandbox.tiers.process import ProcessTier
from agentspec.tools_sandbox.tiers.remote import KEY_VARIABLE, RemoteTier
from agentspec.tools_sandbox.tiers.thread import ThreadTier
from agentspec.tools_sandbox.tool import DeclaredTool, OwnersWord, code_seal
from agentspec.tools_sandbox.worker import Worker

MEMORY_BYTES = 512 * 2**20


@dataclass
class Outcome:
    """How a run ended."""

    result: Any = None
    error: BaseException | None = None

    def value(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


@dataclass
class Started:
    """A run on its way."""

    outcome: Outcome = field(default_factory=Outcome)
    ended: threading.Event = field(default_factory=threading.Event)
    run: Run | None = None

    @property
    def pid(self) -> int | None:
        """Its outermost process, once there is one."""
        child = getattr(self.run, "child", None)
        return child.pid if child is not None else None

    def done(self, result: Any, error: BaseException | None) -> None:
        self.outcome = Outcome(result, error)
        self.ended.set()

    def wait(self, timeout_s: float) -> Outcome:
        return self.outcome if self.ended.wait(timeout_s) else Outcome(error=TimeoutError("still running"))

    def cancel(self) -> None:
        assert self.run is not None
        self.run.cancel()

    def commit(self) -> None:
        assert self.run is not None
        self.run.commit()


class Place:
    """One tier with a workspace."""

    def __init__(self, name: str, tier: Any, workspace: Path, address: str | None = None) -> None:
        self.name = name
        self.isolated = name != "T0"
        self.workspace = workspace
        self.tier = tier
        self._address = address

    def start(
        self, function: Callable[..., Any], /, *, timeout_s: float = 10.0, in_workspace: bool = False, **options: Any
    ) -> Started:
        started = Started()
        sandbox = self._sandbox({name: options.pop(name) for name in _PLACE if name in options})
        place = place_here(sandbox.env)
        if in_workspace:
            place = replace(place, cwd=str(self.workspace))
        order = Order(
            module=function.__module__,
            qualname=function.__qualname__,
            seal=code_seal(function),
            arguments=options,
            form=Form.TYPED.value,
            place=place,
            sandbox=sandbox,
            timeout_s=timeout_s,
            changes_nothing=False,
        )
        call = _in_this_process(function, options)
        started.run = self.tier.start(
            Work(
                function.__name__,
                call,
                started.done,
                order if self.isolated else None,
                None,
                contextvars.copy_context(),
            )
        )
        return started

    def _sandbox(self, given: dict[str, Any]) -> Sandbox:
        given = {"memory_bytes": MEMORY_BYTES, **given, "env": frozenset(given.get("env", ()))}
        if self.name == "T2":
            return Sandbox("overlay", workspace=str(self.workspace), **given)
        if self.name == "T3":
            return Sandbox("remote", address=self._address, **given)
        return Sandbox("process" if self.isolated else "thread", **given)

    def run(self, function: Callable[..., Any], /, *, timeout_s: float = 10.0, **options: Any) -> Outcome:
        started = self.start(function, timeout_s=timeout_s, **options)
        outcome = started.wait(timeout_s + 10.0)
        if self.isolated:
            started.cancel()
        return outcome


_PLACE = ("network", "subprocesses", "env", "memory_bytes")


def _in_this_process(function: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[], Any]:
    def call() -> Any:
        result = pydantic.validate_call(function)(**arguments)
        return asyncio.run(result) if inspect.iscoroutinefunction(function) else result

    return call


@contextlib.contextmanager
def open_place(name: str, workspace: Path) -> Iterator[Place]:
    """The place of that name, or a skip with the reason why this machine has none."""
    if (why := missing_tiers().get(name)) is not None:
        pytest.skip(f"{name}: {why}")
    if name == "T3":
        with _remote(workspace) as place:
            yield place
        return
    tier: Any = {"T0": ThreadTier, "T1": ProcessTier, "T2": OverlayTier}[name]()
    try:
        yield Place(name, tier, workspace)
    finally:
        tier.close()


@contextlib.contextmanager
def _remote(workspace: Path) -> Iterator[Place]:
    os.environ[KEY_VARIABLE] = "k" * 32
    worker = Worker(_everything(), os.environ[KEY_VARIABLE])
    thread = threading.Thread(target=worker.serve, daemon=True)
    thread.start()
    try:
        yield Place("T3", RemoteTier(), workspace, f"127.0.0.1:{worker.port}")
    finally:
        worker.close()
        thread.join(5.0)


def _everything() -> list[DeclaredTool]:
    """The suite's tools, as a worker's owner would have declared them."""
    found = []
    for name, module in list(sys.modules.items()):
        if name.startswith("tests.sandbox.") and not name.startswith(("tests.sandbox.test_", "tests.sandbox.modules")):
            functions = [value for value in vars(module).values() if inspect.isfunction(value)]
            found += [_declared(function) for function in functions if function.__module__ == name]
    return found


@functools.cache
def _declared(function: Callable[..., Any]) -> DeclaredTool:
    nothing = OwnersWord(DomainRule("reads", ()), DomainRule("writes", ()))
    return DeclaredTool(
        function, ToolSpec(function.__name__, Effect.READ, stable_for_s=60.0), nothing, SchemaKeys("any")
    )


def refused(outcome: Outcome) -> bool:
    """Whether the run was refused by the tier rather than ended by the tool."""
    return isinstance(outcome.error, ToolRefused)
