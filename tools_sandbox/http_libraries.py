"""Which HTTP library an SDK's client is made with: httpx, or its successor httpx2, whose classes are its own.

SDKs refuse clients of a library that they do not use, so clients are made with the one that the installed SDK asks for.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from types import ModuleType
from typing import Any

from agentspec.errors import ConfigError

_SDKS = ("openai", "anthropic")


@cache
def http_library(name: str | None = None) -> ModuleType:
    """httpx or httpx2; without a name the one that the installed SDKs ask for.

    Raises:
        ConfigError: there is no such library, or it is not installed.
    """
    chosen = name or _asked_for()
    if chosen not in ("httpx", "httpx2"):
        raise ConfigError(f"http_client: the library is 'httpx' or 'httpx2', not {chosen!r}")
    try:
        return importlib.import_module(chosen)
    except ImportError as error:
        raise ConfigError(f"http_client: {chosen} is not installed; pip install {chosen}") from error


def _asked_for() -> str:
    for sdk in _SDKS:
        try:
            needs = requires(sdk) or []
        except PackageNotFoundError:
            continue
        return "httpx2" if any(need.startswith("httpx2") for need in needs) else "httpx"
    return "httpx"


@cache
def transport_class(way: type, library: ModuleType) -> Any:
    """`way` (methods of a transport, of no library's) as a transport of this library."""
    base = library.AsyncBaseTransport if hasattr(way, "handle_async_request") else library.BaseTransport
    return type(way.__name__, (way, base), {"http": library})
