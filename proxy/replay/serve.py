"""Running the recorded endpoint: in this process until stopped, or on a thread for as long as a block lasts."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from agentspec.errors import ConfigError
from agentspec.proxy.replay.endpoint import App, Pace, RecordedEndpoint
from agentspec.proxy.replay.recordings import load


def serve_recorded(*files: Path, host: str = "127.0.0.1", port: int = 0, pace: Pace | None = None) -> None:
    """Serve files of recordings until interrupted; the first line printed is the base URL.

    Raises:
        ConfigError: a file is no recording, or the port is taken.
    """
    app = RecordedEndpoint(load(*files), pace)
    with _listening(host, port) as listener:
        print(_base_url(listener), flush=True)
        _server(app).run(sockets=[listener])


@contextlib.contextmanager
def serving(app: App) -> Iterator[str]:
    """Serve on a free port of the loopback from a thread; gives the base URL."""
    server = _server(app)
    with _listening("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="recorded-endpoint")
        thread.start()
        try:
            yield _base_url(listener)
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join()


def _server(app: App) -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that already takes connections, so that no client comes too early."""
    try:
        listener = socket.create_server((host, port), backlog=256)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}; choose another --port") from error
    with listener:
        yield listener


def _base_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}/v1"
