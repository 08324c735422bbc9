"""The secret that callers without a key of ours are told apart by. It is kept: memory finds them again tomorrow."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from pathlib import Path

from agentspec.config import Settings, state_folder

log = logging.getLogger("agentspec.doors")

_SIZE_BYTES = 32
_OF_THIS_PROCESS = secrets.token_bytes(_SIZE_BYTES)


def tenant_secret(settings: Settings) -> bytes:
    """The kept one where anything is kept of tenants, else one of this process."""
    if settings.keys or not (settings.speculation and settings.memory and settings.memory_database):
        return _OF_THIS_PROCESS
    return kept_secret(state_folder() / "tenants.secret")


def kept_secret(path: Path) -> bytes:
    """The secret in a file that only its owner reads; made where there is none, by whoever comes first."""
    try:
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
        _make(path)
        return _read(path)
    except (OSError, ValueError) as error:
        log.warning("%s cannot be used, memory will not find its tenants again after a restart: %s", path, error)
        return _OF_THIS_PROCESS


def _read(path: Path) -> bytes:
    found = path.read_bytes()
    if len(found) != _SIZE_BYTES:
        raise ValueError(f"it holds {len(found)} bytes instead of {_SIZE_BYTES}")
    return found


def _make(path: Path) -> None:
    """Whole or not at all: it gets its name when it is complete, unless another process was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_SIZE_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)
