"""Declarations in a file, for tools whose code cannot be decorated.

[tools."shop.api:get_order"]
effect = "read"
reads = ["order:{order_id}"]
stable_for = 30
"""

from __future__ import annotations

import functools
import importlib
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentspec.errors import ConfigError
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.declare import Options, speculate
from agentspec.tools_sandbox.domains import from_templates


class SandboxInFile(BaseModel):
    """A sandbox as a file writes it."""

    model_config = ConfigDict(extra="forbid")

    isolation: str
    workspace: str | None = None
    network: bool = False
    subprocesses: bool = False
    env: list[str] = Field(default_factory=list)
    memory_bytes: int = 2 * 2**30
    address: str | None = None
    warm: bool = False


class DeclarationInFile(BaseModel):
    """A tool's declaration as a file writes it: what `@speculate` takes, less the owner's functions."""

    model_config = ConfigDict(extra="forbid")

    effect: str
    reads: list[str] = Field(default_factory=list)
    writes: list[str] = Field(default_factory=list)
    stable_for: float | None = None
    egress: bool = False
    needs_approval: bool = False
    ahead: bool = True
    timeout_s: float | None = None
    max_inflight: int | None = None
    rate: float | None = None
    name: str | None = None
    sandbox: str | SandboxInFile = "thread"

    def options(self) -> Options:
        """The same for `speculate`.

        Raises:
            ConfigError: the sandbox or a domain cannot be read.
        """
        given = self.model_dump(exclude={"reads", "writes", "sandbox"})
        place = self.sandbox
        sandbox = place if isinstance(place, str) else Sandbox(**{**place.model_dump(), "env": frozenset(place.env)})
        reads, writes = from_templates("reads", self.reads), from_templates("writes", self.writes)
        options: Any = {**given, "reads": reads, "writes": writes, "sandbox": sandbox}
        return cast(Options, options)


def read_declaration(where: str, given: Any) -> Options:
    """One declaration, checked.

    Raises:
        ConfigError: a key is unknown or has a wrong type.
    """
    try:
        return DeclarationInFile.model_validate(given).options()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except ValidationError as error:
        found = error.errors()
        first = next((one for one in found if SandboxInFile.__name__ in one["loc"]), found[0])
        if not isinstance(given, Mapping) or not isinstance(given.get("sandbox"), Mapping):
            first = found[0]
        name = ".".join(str(part) for part in first["loc"] if part != SandboxInFile.__name__)
        known = ", ".join((SandboxInFile if "sandbox." in name else DeclarationInFile).model_fields)
        why = f"there is no such key; known are {known}" if first["type"] == "extra_forbidden" else first["msg"]
        raise ConfigError(f"{where}: {name}: {why}") from error


def declare_tools(path: str | Path) -> list[Callable[..., Any]]:
    """Decorate the functions that a TOML file names, in their modules. Call it before anything takes them from there.

    Returns:
        the decorated functions, for `connect(tools=...)` and for frameworks.

    Raises:
        ConfigError: the file cannot be read, a function is not found, or a declaration contradicts itself.
    """
    file = _read(Path(path))
    if strange := sorted(file.keys() - {"tools"}):
        raise ConfigError(f'{path}: there is no [{strange[0]}]; write [tools."package.module:function"]')
    tools = file.get("tools", {})
    if not isinstance(tools, Mapping) or not tools:
        raise ConfigError(f'{path}: no tools; write [tools."package.module:function"] and effect = ...')
    found = [_declare(f"{path}: {name}", name, given) for name, given in tools.items()]
    for owner, attribute, decorated in found:  # all of them or none
        setattr(owner, attribute, decorated)
    return [decorated for _, _, decorated in found]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _declare(where: str, name: str, given: Any) -> tuple[Any, str, Callable[..., Any]]:
    """The module or class that holds a function, its name there, and the function decorated."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(f"{where}: write it as package.module:function")
    try:
        *path, last = attribute.split(".")
        owner = functools.reduce(getattr, path, importlib.import_module(module))
        function = vars(owner)[last]
    except (ImportError, AttributeError, KeyError, ValueError) as error:
        raise ConfigError(f"{where}: there is no such function ({error!r})") from error
    options = read_declaration(where, given)
    try:
        decorated: Callable[..., Any] = speculate(function, **options)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return owner, last, decorated
