"""The runtimes that are connected, which of them holds a request's tools, and the writes that hold reads back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agentspec import channel, clock
from agentspec.effects import ToolSpec
from agentspec.errors import ConfigError
from agentspec.proxy.tool_names import held_names
from agentspec.wire.request import Schemas

log = logging.getLogger("agentspec.runtimes")


_MAX_NAMES = 10_000

UNSEEN = "?"
"""Stands for the calls of an answer that could not be read."""


@dataclass(frozen=True, slots=True)
class HeldTool:
    """A tool of a runtime; `loose`: its owner decides which calls are the same."""

    spec: ToolSpec
    loose: bool


@dataclass(slots=True, eq=False)
class RuntimeLink:
    """One connected runtime. `send` queues a message and returns at once."""

    id: str
    tenant: str
    send: Callable[[channel.FromProxy], None]
    harmless: frozenset[str] = frozenset()
    """Undeclared tools that the operator knows to change nothing."""
    tools: dict[str, HeldTool] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Names that the last requests used for its tools, where they are others."""
    prefixed: bool = False
    """Whether that may be (MCP clients put the server's name before)."""
    tells: bool = False
    """Whether it gives copies of the results of runs ahead."""
    undecoded: int = 0
    """Answers to its turns that are not streamed and have gone out in part: their calls are read at the end."""
    deferred: list[channel.Ask] = field(default_factory=list)
    """Questions that wait until those have been read."""
    _windows: dict[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """A short name that gives nothing away."""
        return self.id[:6]

    def offer(self, infos: list[channel.ToolInfo], *, prefixed: bool = False) -> None:
        """Take the tools it holds; one whose declaration contradicts itself is left out."""
        self.tools, self.prefixed = {}, prefixed
        for info in infos:
            try:
                self.tools[info.name] = HeldTool(info.spec(), info.loose)
            except (ConfigError, ValueError) as error:
                log.warning("runtime %s: tool %s is left out: %s", self.label, info.name, error)
        self.names = {name: held for name, held in self.names.items() if held in self.tools}

    def learn_names(self, offered: Schemas) -> None:
        """A request offers these tools: note what it calls ours."""
        if not self.prefixed:
            return
        found = self.shared(offered)
        for name in offered:  # what an earlier request meant by a name counts no longer
            self.names.pop(name, None)
        if len(self.names) < _MAX_NAMES:
            self.names.update((name, held) for name, held in found.items() if name != held)

    def shared(self, offered: Schemas) -> dict[str, str]:
        """Those of a request's tools that it holds, with their names here."""
        if self.prefixed:
            return held_names(offered, self.tools)
        return {name: name for name in offered if name in self.tools}

    def name_of(self, tool: str) -> str:
        """A tool's name here, from its name in a request."""
        return tool if tool in self.tools else self.names.get(tool, tool)

    def held(self, tool: str) -> HeldTool | None:
        """The tool that a request means by this name, if this runtime holds it."""
        return self.tools.get(self.name_of(tool))

    def may_run_ahead(self, offered: Schemas) -> dict[str, ToolSpec]:
        """The request's tools that this runtime can run ahead, by the names that the request uses."""
        held = {name: self.held(name) for name in offered}
        return {name: tool.spec for name, tool in held.items() if tool is not None and tool.spec.may_run_ahead}

    def writes(self, tool: str) -> bool:
        """Whether a relayed call of this tool counts as a write of everything."""
        held = self.held(tool)
        return tool not in self.harmless if held is None else not held.spec.effect.changes_nothing

    def open_window(self, turn: str, call: str, limit_s: float) -> None:
        """A write was relayed: until its result is back no read starts or is claimed."""
        self._windows[f"{turn}:{call}"] = clock.monotonic() + limit_s

    def close_windows(self, turn: str, ids: frozenset[str] | None) -> None:
        """Results of a turn's calls are back: of those with these ids and of unseen ones, or of all of them."""
        for key in [key for key in self._windows if key.startswith(f"{turn}:")]:
            if ids is None or key.removeprefix(f"{turn}:") in (*ids, UNSEEN):
                del self._windows[key]

    def hand_windows_on(self, turn: str, later: str) -> None:
        """The trajectory has gone on without these results: a later turn may tell them."""
        for key in [key for key in self._windows if key.startswith(f"{turn}:")]:
            self._windows[f"{later}:{key.removeprefix(f'{turn}:')}"] = self._windows.pop(key)

    def writing_in(self, turn: str) -> bool:
        """Whether a write that this turn relayed is going on."""
        return any(key.startswith(f"{turn}:") for key in self._windows)

    def writing(self, besides: tuple[str, str] | None = None) -> bool:
        """Whether a relayed write is going on; `besides` the one of this turn and call."""
        if self._windows:
            now = clock.monotonic()
            self._windows = {key: until for key, until in self._windows.items() if until > now}
        own = None if besides is None else f"{besides[0]}:{besides[1]}"
        return any(key != own for key in self._windows)


class Runtimes:
    """The connected runtimes by their secret id. `by_key`: tenants are told apart by keys of ours, and never meet."""

    def __init__(self, *, by_key: bool = False) -> None:
        self._by_key = by_key
        self._links: dict[str, RuntimeLink] = {}

    def add(self, link: RuntimeLink) -> None:
        """A runtime said hello (again)."""
        self._links[link.id] = link

    def remove(self, link: RuntimeLink) -> None:
        """Its channel closed."""
        if self._links.get(link.id) is link:
            del self._links[link.id]

    def all(self) -> list[RuntimeLink]:
        """Those that are connected now."""
        return list(self._links.values())

    def __len__(self) -> int:
        return len(self._links)

    def named(self, identity: str | None) -> RuntimeLink | None:
        """The runtime with this id."""
        return self._links.get(identity) if identity else None

    def runs_ahead_for(self, link: RuntimeLink, tenant: str) -> bool:
        """Whether this tenant's guesses may run there. Its writes count there in any case."""
        return not self._by_key or link.tenant == tenant

    def for_request(self, identity: str | None, tenant: str, offered: Schemas) -> RuntimeLink | None:
        """The runtime that holds this request's tools; None where it is unknown or several could be it."""
        if identity is not None:
            return self._links.get(identity)
        fitting = [link for link in self._links.values() if link.tenant == tenant and _holds(link, offered)]
        return fitting[0] if len(fitting) == 1 else None


def _holds(link: RuntimeLink, schemas: Mapping[str, Mapping[str, object]]) -> bool:
    """Whether the runtime registered any of these tools, with the same parameter names for each that it did."""
    shared = link.shared(schemas)
    return bool(shared) and all(
        _parameter_names(schemas[name]) == _parameter_names(link.tools[held].spec.parameters)
        for name, held in shared.items()
    )


def _parameter_names(schema: Mapping[str, object]) -> frozenset[str]:
    properties = schema.get("properties")
    return frozenset(properties) if isinstance(properties, Mapping) else frozenset()
