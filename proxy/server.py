"""Serving the proxy: a socket, uvicorn, one line that says where it is."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
import sys

import uvicorn
from rich.console import Console
from rich.logging import RichHandler

from agentspec.config import Settings
from agentspec.errors import ConfigError
from agentspec.proxy.wiring import build


def serve(settings: Settings) -> None:
    """Serve until interrupted.

    Raises:
        ConfigError: the port is in use, the address is not ours or not this machine's alone, a setting is wrong.
    """
    _refuse_open_doors(settings.host)
    listener = _listen(settings)
    try:
        app = build(settings)
        port = listener.getsockname()[1]
        _greet(settings, port)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            ws_ping_interval=20.0,
            timeout_graceful_shutdown=5,
        )
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()


def _refuse_open_doors(host: str) -> None:
    """Whoever reaches the channel decides what runs in an agent's process: loopback only, until there are keys."""
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise ConfigError(f"setting host: {host!r} is reachable from outside; this version serves loopback only")


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
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
    for noisy in ("uvicorn.error", "uvicorn.asgi", "websockets", "httpx"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    console = Console(file=sys.stdout, soft_wrap=True, highlight=False)
    probing = f"probes as for {settings.engine}" if settings.probes_allowed else "no probes"
    state = probing if settings.speculation else "speculation is off"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    console.print(f"agentspec listens on http://{host}:{port}/v1 -> {settings.upstream} ({state})")
    if settings.engine.hosted and settings.probe and not settings.probes_allowed:
        console.print("  hosted endpoint: probes cost money and are off; --probe-money-cap-usd and prices turn them on")
    sys.stdout.flush()
