"""Serving the proxy: a socket, uvicorn, one line that says where it is."""

from __future__ import annotations

import errno
import gc
import logging
import socket
import sys

import uvicorn
from rich.console import Console
from rich.logging import RichHandler

from agentspec.config import Engine, Settings
from agentspec.errors import ConfigError
from agentspec.proxy.app import App
from agentspec.proxy.doors import check_openness
from agentspec.proxy.http_protocol import guarded_http
from agentspec.proxy.wiring import Parts, build

_SWITCH_S = 0.0005
_KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection: one that they are about to use must not be closed under their hands."""


def serve(settings: Settings, parts: Parts | None = None) -> None:
    """Serve until interrupted.

    Raises:
        ConfigError: the port is in use, the address is not ours or open to others without a key, a setting is wrong.
    """
    check_openness(settings)
    listener = _listen(settings)
    try:
        app = build(settings, parts=parts)
        port = listener.getsockname()[1]
        _greet(settings, port)
        _favour_the_relay()
        _Server(app, settings).run(sockets=[listener])
    finally:
        listener.close()


class _Server(uvicorn.Server):
    """uvicorn's, which waits at its end for all answers but those that go on for ever."""

    def __init__(self, app: App, settings: Settings) -> None:
        super().__init__(server_config(app, settings))
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.hang_up()
        await super().shutdown(sockets)


def _favour_the_relay() -> None:
    """What is here now stays: the collector need not look at it again, nor at everything new so often. And whoever
    else holds the interpreter (memory's threads, the ledger's) gives it back within a fraction of what a chunk may be
    late.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def server_config(app: App, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves the app."""
    return uvicorn.Config(
        app,
        http=guarded_http(settings.max_header_bytes),
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        ws_ping_interval=20.0,
        ws_per_message_deflate=False,  # short messages to a neighbour: packing them takes longer than sending them
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=5,
    )


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or no connection is undelayed
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {settings.port} is in use; choose another with --port (0: any free one)"
            ) from error
        raise ConfigError(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
    listener.listen(1024)
    listener.set_inheritable(True)
    return listener


def _greet(settings: Settings, port: int) -> None:
    if sys.stderr.isatty():
        handler: logging.Handler = RichHandler(console=Console(stderr=True), show_path=False)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:  # one record, one line, for whoever collects them
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("uvicorn.error", "uvicorn.asgi", "websockets", "httpx", "opentelemetry", "urllib3", "alembic"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    console = Console(file=sys.stdout, soft_wrap=True, highlight=False)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    off = "" if settings.speculation else " (speculation is off)"
    ways = [(", ".join(one.models), one.url, one.kind) for one in settings.upstreams]
    if settings.upstream:
        ways.append(("", settings.upstream, settings.engine))
    first, *more = [_way(*way, settings) for way in ways]
    console.print(f"agentspec listens on http://{host}:{port}/v1{off} -> {first}")
    for way in more:
        console.print(f"  -> {way}")
    if settings.dashboard:
        console.print(f"  dashboard: http://{host}:{port}/dashboard")
    if any(kind.hosted and not settings.probes_allowed(kind) for _, _, kind in ways) and settings.probe:
        console.print("  hosted endpoint: probes cost money and are off; --probe-money-cap-usd and prices turn them on")
    sys.stdout.flush()


def _way(models: str, url: str, kind: Engine, settings: Settings) -> str:
    probing = f"probes as for {kind}" if settings.probes_allowed(kind) else "no probes"
    return f"{url} ({models + '; ' if models else ''}{probing})"
