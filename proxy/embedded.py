"""`agentspec.embedded(upstream)`: the whole proxy in the agent's process, behind an HTTP client; no server, no port.

engine = agentspec.embedded("http://127.0.0.1:8000/v1", engine="vllm")
client = OpenAI(base_url=engine.base_url, http_client=engine.http_client())
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from agentspec.config import Settings, load
from agentspec.protocols import Speculator
from agentspec.proxy.app import App
from agentspec.proxy.engine_socket import EngineSocket
from agentspec.proxy.in_process import AsyncEngineWay, SyncEngineWay
from agentspec.proxy.wiring import build
from agentspec.tools_sandbox.channel_client import Dial
from agentspec.tools_sandbox.connect import Connection
from agentspec.tools_sandbox.http_libraries import transport_class

_ADDRESS = "http://localhost"
"""Stands in the base URL; nothing ever connects to it."""


class Engine:
    """The proxy's application on an event loop of its own, in a thread; started when it is first needed."""

    def __init__(self, settings: Settings, extra_speculators: Sequence[Speculator] = ()) -> None:
        self._settings = settings
        self._extra = extra_speculators
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._app: App | None = None
        self._pid = 0
        self._stopped = False

    def running(self) -> tuple[App, asyncio.AbstractEventLoop]:
        """The application and its loop. A child process after a fork gets its own.

        Raises:
            ConfigError: the ledger's database cannot be opened.
            ConnectionError: it has been stopped.
        """
        with self._lock:
            if self._stopped:
                raise ConnectionError("the embedded engine has been closed")
            if self._loop is None or self._app is None or self._pid != os.getpid():
                self._app = build(self._settings, self._extra)
                self._loop = asyncio.new_event_loop()
                self._pid = os.getpid()
                threading.Thread(target=self._loop.run_forever, name="agentspec-engine", daemon=True).start()
                asyncio.run_coroutine_threadsafe(self._app.start(), self._loop).result()
                atexit.register(self.stop)  # or what the ledger has not written yet is lost
            return self._app, self._loop

    def forget_the_parents(self) -> None:
        """In a child process after a fork: the thread is not here, and its lock may be held for ever."""
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Close the endpoint's connections, write the ledger, end the thread."""
        atexit.unregister(self.stop)
        with self._lock:
            self._stopped = True
            app, loop, self._app, self._loop = self._app, self._loop, None, None
        if app is not None and loop is not None and self._pid == os.getpid():
            asyncio.run_coroutine_threadsafe(_end(app), loop).result()
            loop.call_soon_threadsafe(loop.stop)


async def _end(app: App) -> None:
    """Stop the application and what is still going on in it."""
    await app.stop()
    going_on = asyncio.all_tasks() - {asyncio.current_task()}
    for task in going_on:
        task.cancel()
    await asyncio.gather(*going_on, return_exceptions=True)


class Embedded(Connection):
    """This process as agent, runtime and proxy in one. Made by `embedded`."""

    def __init__(self, engine: Engine, tools: Iterable[Callable[..., Any]] | None, redis: str | None = None) -> None:
        self._engine = engine
        super().__init__(_ADDRESS, tools=tools, redis=redis, tell_results=True)

    def _dial(self) -> Dial:
        return lambda: EngineSocket(*self._engine.running())

    def _transport(self, http: ModuleType) -> Any:
        return transport_class(SyncEngineWay, http)(self._engine.running)

    def _async_transport(self, http: ModuleType) -> Any:
        return transport_class(AsyncEngineWay, http)(self._engine.running)

    def close(self) -> None:
        """The tools run plainly from now on, and the clients reach nothing."""
        super().close()
        self._engine.stop()

    def _after_fork(self) -> None:
        self._engine.forget_the_parents()
        super()._after_fork()


def embedded(
    upstream: str,
    *,
    tools: Iterable[Callable[..., Any]] | None = None,
    speculators: Sequence[Speculator] = (),
    redis: str | None = None,
    wait_s: float = 2.0,
    **settings: Any,
) -> Embedded:
    """Make this process its own proxy: `base_url` and `http_client()` of what is returned are for the SDK.

    Args:
        upstream: base URL of the model endpoint, with its `/v1`.
        tools: decorated functions to offer; by default all that are declared in this process, now or later.
        speculators: more of them, beside the usual ones.
        redis: as for `connect`: where several processes run tools on the same state.
        wait_s: seconds to wait until the tools are known to the engine.
        settings: as for `agentspec serve` (`agentspec config show` lists them), for example `engine="vllm"`.

    Raises:
        ConfigError: a setting is wrong, the ledger's database cannot be opened, a tool in `tools` is not declared.
    """
    engine = Engine(load({"upstream": upstream, **settings}), speculators)
    engine.running()
    connection = Embedded(engine, tools, redis)
    connection.wait(wait_s)
    return connection
