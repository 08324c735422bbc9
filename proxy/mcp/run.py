"""`agentspec mcp`: the gateway on standard input and output, or over HTTP. What it says goes to standard error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION, ErrorData, JSONRPCError, UnsupportedProtocolVersionErrorData
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from agentspec.errors import ConfigError
from agentspec.proxy.doors import is_loopback
from agentspec.proxy.mcp.gateway import Gateway
from agentspec.proxy.mcp.servers import read_servers
from agentspec.proxy.mcp.sessions import ProxyAt
from agentspec.tools_sandbox.connect import REDIS_VARIABLE
from agentspec.tools_sandbox.shared import SharedDomains

log = logging.getLogger("agentspec.mcp")

_KEYS = ("AGENTSPEC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
_VERSION_HEADER = b"mcp-protocol-version"


@dataclass(frozen=True, slots=True)
class Options:
    """How the gateway is run. `http`: HOST:PORT to listen on, instead of standard input and output."""

    config: Path
    proxy: str
    http: str | None = None
    redis: str | None = None


def serve(options: Options) -> None:
    """Run the gateway until its input ends, or it is told to stop.

    Raises:
        ConfigError: the file of servers, an address or a setting is wrong.
    """
    listening = _bound(options.http) if options.http is not None else None
    gateway = Gateway(read_servers(options.config), _proxy(options))
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    warnings.simplefilter("ignore")  # of the SDK's, about parts of the protocol that agents still use
    _run(_over_stdio(gateway) if listening is None else _over_http(gateway, listening))


def _run(main: Any) -> None:
    import uvloop

    uvloop.run(main)


def _proxy(options: Options) -> ProxyAt:
    parts = urlsplit(options.proxy)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"--proxy: {options.proxy!r} is no URL; write for example http://127.0.0.1:8787")
    key = next((found for name in _KEYS if (found := os.environ.get(name))), None)
    redis = options.redis or os.environ.get(REDIS_VARIABLE)
    return ProxyAt(f"{parts.scheme}://{parts.netloc}", key, SharedDomains(redis, key or "") if redis else None)


async def _over_stdio(gateway: Gateway) -> None:
    _stop_on(gateway)
    server = gateway.server
    async with stdio_server() as (reader, writer):
        await serve_loop(server, reader, writer, lifespan_state={})


def _stop_on(gateway: Gateway) -> None:
    """A read of standard input cannot be interrupted: end the servers, then the process."""
    ending: list[asyncio.Task[None]] = []

    async def end(code: int) -> None:
        with contextlib.suppress(Exception):
            await gateway.close()
        os._exit(code)

    def told(number: int) -> None:
        ending.append(asyncio.ensure_future(end(128 + number)))

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told, number)


async def _over_http(gateway: Gateway, listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    app = _with_handshake(gateway.server.streamable_http_app(host="127.0.0.1"))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    print(f"agentspec mcp: http://{host}:{port}/mcp", file=sys.stderr, flush=True)
    await server.serve([listening])
    await gateway.close()


def _with_handshake(app: ASGIApp) -> ASGIApp:
    """The newer era has no sessions: refuse it as the protocol says, so that clients fall back to the handshake."""

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        headers: Sequence[tuple[bytes, bytes]] = scope.get("headers", ())
        version = next((value.decode("latin-1") for name, value in headers if name == _VERSION_HEADER), None)
        if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS:
            await app(scope, receive, send)
        else:
            await _refusal(version)(scope, receive, send)

    return asked


def _refusal(version: str) -> JSONResponse:
    data = UnsupportedProtocolVersionErrorData(supported=list(HANDSHAKE_PROTOCOL_VERSIONS), requested=version)
    error = ErrorData(
        code=UNSUPPORTED_PROTOCOL_VERSION, message="this server keeps sessions", data=data.model_dump(mode="json")
    )
    body = JSONRPCError(jsonrpc="2.0", id=None, error=error)
    return JSONResponse(body.model_dump(by_alias=True, mode="json"), status_code=400)


def _bound(address: str) -> socket.socket:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError(f"--http: {address!r} is no address; write HOST:PORT, for example 127.0.0.1:8788")
    host = host.strip("[]") or "127.0.0.1"
    if not is_loopback(host):
        raise ConfigError(f"--http: {host!r} is reachable from outside, and the gateway has no keys: use 127.0.0.1")
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, int(port)))
    except OSError as error:
        raise ConfigError(f"--http: cannot listen on {address}: {error.strerror}") from error
    found.listen(128)
    return found
