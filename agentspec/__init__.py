"""agentspec: runs an agent's next tool call ahead of time, without changing what the agent does.

A few names are all a user's code needs; they are imported on first use, so `import agentspec` stays cheap:

* `speculate`: declare a tool that may run ahead (`agentspec.tools_sandbox.declare`)
* `declare_tools`: the same from a file, for tools whose code cannot be decorated
* `Sandbox`: where a tool runs ahead (`agentspec.sandbox`)
* `connect`: open a runtime in the agent's process (`agentspec.tools_sandbox.connect`)
* `embedded`: the same without a server (`agentspec.proxy.embedded`)
* `ProxyTransport`: an httpx transport that goes straight to the endpoint when the proxy is gone
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

_CHECKOUT = Path(__file__).resolve().parent.parent
if (_CHECKOUT / "pyproject.toml").exists() and (_CHECKOUT / "tools_sandbox").is_dir():
    __path__.append(str(_CHECKOUT))  # in a checkout the packages lie beside this folder, in a wheel inside it

if TYPE_CHECKING:
    from agentspec.proxy.embedded import embedded as embedded
    from agentspec.sandbox import Sandbox as Sandbox
    from agentspec.tools_sandbox.connect import connect as connect
    from agentspec.tools_sandbox.declarations import declare_tools as declare_tools
    from agentspec.tools_sandbox.declare import speculate as speculate
    from agentspec.tools_sandbox.transport import ProxyTransport as ProxyTransport

_PUBLIC = {
    "Sandbox": "agentspec.sandbox",
    "connect": "agentspec.tools_sandbox.connect",
    "declare_tools": "agentspec.tools_sandbox.declarations",
    "embedded": "agentspec.proxy.embedded",
    "speculate": "agentspec.tools_sandbox.declare",
    "ProxyTransport": "agentspec.tools_sandbox.transport",
}

__all__ = ["ProxyTransport", "Sandbox", "connect", "declare_tools", "embedded", "speculate"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'agentspec' has no attribute {name!r}; it has: {', '.join(sorted(_PUBLIC))}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
