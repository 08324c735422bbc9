"""The servers behind the gateway: the usual `mcpServers` file, with what the operator says of their tools beside it.

{"mcpServers": {"orders": {
    "command": "orders-server", "args": ["--db", "shop"],
    "agentspec": {"stable_for": 30, "tools": {"get_order": {"effect": "read", "reads": ["order:{order_id}"]}}}}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcp_types import Tool
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentspec.effects import Effect
from agentspec.errors import ConfigError
from agentspec.tools_sandbox.declarations import read_declaration
from agentspec.tools_sandbox.declare import Options, declaration


class OperatorsWord(BaseModel):
    """The part `agentspec` of a server's entry."""

    model_config = ConfigDict(extra="forbid")

    trusted: bool = False
    stable_for: float | None = Field(default=None, gt=0)
    tools: dict[str, dict[str, Any]] = Field(default_factory=dict)


class EntryInFile(BaseModel):
    """A server's entry. Keys that other clients know (`disabled`, `timeout`, …) are theirs, and are let through."""

    type: Literal["stdio", "http", "streamable-http", "sse"] | None = None
    command: str | None = None
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    agentspec: OperatorsWord = Field(default_factory=OperatorsWord)

    @model_validator(mode="after")
    def _one_way(self) -> EntryInFile:
        if (self.command is None) == (self.url is None):
            raise ValueError('write either "command" (a server to start) or "url" (one that runs)')
        if self.command is not None and self.type not in (None, "stdio"):
            raise ValueError(f'"type": "{self.type}" needs "url", not "command"')
        if self.url is not None and self.type == "stdio":
            raise ValueError('"type": "stdio" needs "command", not "url"')
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"{self.url!r} is no URL; write for example http://127.0.0.1:9000/mcp")
        return self


class FileOfServers(BaseModel):
    """The whole file."""

    mcpServers: dict[str, EntryInFile] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Server:
    """One server: how it is reached, and what may be done with its tools."""

    name: str
    entry: EntryInFile
    declared: Mapping[str, Options] = field(default_factory=dict)

    def options_of(self, tool: Tool) -> Options:
        """What a tool does: as declared, else by the hint of a trusted server, else a write of everything."""
        declared = self.declared.get(tool.name)
        if declared is not None:
            return declared
        word, hints = self.entry.agentspec, tool.annotations
        if not word.trusted or word.stable_for is None or hints is None or hints.read_only_hint is not True:
            return Options(effect="write")
        return Options(effect="read", stable_for=word.stable_for, egress=hints.open_world_hint is not False)


def read_servers(path: str | Path) -> list[Server]:
    """The servers that a file names.

    Raises:
        ConfigError: the file cannot be read, an entry is wrong, or a declaration contradicts itself.
    """
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        found = FileOfServers.model_validate(json.loads(text))
    except ValidationError as error:
        raise ConfigError(f"{path}: {_told(error)}") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from error
    return [Server(name, entry, _declared(f"{path}: {name}", entry)) for name, entry in found.mcpServers.items()]


def _declared(where: str, entry: EntryInFile) -> dict[str, Options]:
    word = entry.agentspec
    if word.trusted and word.stable_for is None:
        raise ConfigError(f"{where}: trusted needs stable_for=SECONDS beside it: how old may a result be?")
    return {tool: _checked(f"{where}: {tool}", tool, given, word.stable_for) for tool, given in word.tools.items()}


def _checked(where: str, tool: str, given: Mapping[str, Any], stable_for: float | None) -> Options:
    """One declaration; a read without its own `stable_for` has the server's."""
    if "name" in given:
        raise ConfigError(f"{where}: drop name; a server's tool keeps the name that the server gives it")
    filled = dict(given)
    if filled.get("effect") == Effect.READ and filled.get("stable_for") is None and stable_for is not None:
        filled["stable_for"] = stable_for
    try:
        options = read_declaration(where, filled)
        declaration(options, tool, {})
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
    return options


def _told(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{where}: there is no such key; known are {', '.join(OperatorsWord.model_fields)}"
    if first["type"] == "missing" and where == "mcpServers":
        return 'mcpServers is missing; write {"mcpServers": {"NAME": {"command": ...}}}'
    return f"{where}: {first['msg'].removeprefix('Value error, ')}" if where else str(first["msg"])
