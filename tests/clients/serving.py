"""An ASGI application on a loopback socket, in a thread of its own, served as the command serves the proxy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

PATIENCE_S = 10.0


class Serving:
    """A running server; requests wait in its socket until it is up."""

    def __init__(self, app: Any) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.root = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        config = uvicorn.Config(
            app,
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        self._listener.close()
        assert not self._thread.is_alive(), "a server did not stop"


StartProxy = Callable[..., Serving]
"""StartProxy(endpoint, *speculators, **settings)."""


def nobody_there() -> str:
    """A base URL on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
