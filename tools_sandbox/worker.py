"""The worker: runs declared tools for agents on other machines, each call in tier T1. `agentspec worker`."""

from __future__ import annotations

import contextlib
import hmac
import importlib
import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
from websockets.exceptions import WebSocketException
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from agentspec.errors import ConfigError, ToolRefused
from agentspec.runs import Order, Work
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.environment import place_here
from agentspec.tools_sandbox.tiers import frames
from agentspec.tools_sandbox.tiers.parcel import pack, pack_error
from agentspec.tools_sandbox.tiers.process import ProcessTier
from agentspec.tools_sandbox.tiers.remote import KEY_VARIABLE, PATH, RemoteJob
from agentspec.tools_sandbox.tool import DECLARED, DeclaredTool, snapshot

log = logging.getLogger("agentspec.worker")

_decoder = msgspec.msgpack.Decoder(RemoteJob)
_MAX_RUNNING = 32
_MAX_JOB_BYTES = 16 * 2**20


class Worker:
    """Serves declared tools.

    Args:
        tools: those that may be run here.
        key: what agents must show.

    Raises:
        ConfigError: there is no key, or the address cannot be listened on.
    """

    def __init__(self, tools: Iterable[DeclaredTool], key: str | None, host: str = "127.0.0.1", port: int = 0) -> None:
        if not key:
            raise ConfigError(f"a worker needs a key that agents must show: set {KEY_VARIABLE}")
        self._key = key
        self._tools = {(tool.function.__module__, tool.function.__qualname__): tool for tool in tools}
        self._tier = ProcessTier(max_running=_MAX_RUNNING)
        try:
            self._tier.prepare(list(self._tools.values()))
            self._server: Server = serve(
                self._connection, host, port, process_request=self._door, max_size=_MAX_JOB_BYTES, compression=None
            )
        except ToolRefused as error:
            raise ConfigError(f"this machine cannot shut tools in: {error} (`agentspec doctor` says more)") from error
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error

    @property
    def port(self) -> int:
        """The port that it listens on."""
        address: tuple[Any, ...] = self._server.socket.getsockname()
        return int(address[1])

    @property
    def tools(self) -> list[str]:
        """Names of the tools that it serves."""
        return sorted(tool.name for tool in self._tools.values())

    def serve(self) -> None:
        """Until `close`."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop serving, and end every run."""
        self._server.shutdown()
        self._tier.close()

    def _door(self, connection: ServerConnection, request: Request) -> Response | None:
        shown = request.headers.get("Authorization", "")
        if request.path != PATH or not hmac.compare_digest(shown.encode(), f"Bearer {self._key}".encode()):
            return connection.respond(403, "this worker wants its key\n")
        return None

    def _connection(self, connection: ServerConnection) -> None:
        """One run: its connection's thread waits for it, and for the agent to leave."""
        run = None
        try:
            job = _decoder.decode(connection.recv(timeout=10.0, decode=False))
            run = self._tier.start(self._work(job, connection))
            connection.recv()  # nothing more is said: this ends when the agent closes
        except ToolRefused as error:
            _answer(connection, frames.REFUSED, str(error).encode("utf-8", "replace"))
        except (WebSocketException, TimeoutError, msgspec.DecodeError, OSError) as error:
            log.debug("a connection ended: %r", error)
        finally:
            if run is not None:
                run.cancel()

    def _work(self, job: RemoteJob, connection: ServerConnection) -> Work:
        tool = self._tools.get((job.module, job.qualname))
        if tool is None or not tool.spec.effect.changes_nothing:
            raise ToolRefused(f"{job.module}:{job.qualname} is not declared pure or read at this worker")
        order = Order(
            module=job.module,
            qualname=job.qualname,
            seal=job.seal,
            arguments=job.arguments,
            form=job.form,
            place=replace(place_here(()), declared=job.env),
            sandbox=Sandbox(
                "process", network=job.network, subprocesses=job.subprocesses, memory_bytes=job.memory_bytes
            ),
            timeout_s=job.timeout_s,
        )
        return Work(tool.name, _never, lambda result, error: _end(connection, result, error), order)


def tools_of(modules: Iterable[str]) -> list[DeclaredTool]:
    """Import modules; every tool that is declared then.

    Raises:
        ConfigError: a module cannot be imported, or they declare no tools.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise ConfigError(f"the module {module} cannot be imported: {error!r}") from error
    found = snapshot(DECLARED)
    if not found:
        raise ConfigError("these modules declare no tools: put @speculate(effect=..., sandbox=...) on them")
    return found


def _never() -> Any:
    raise ToolRefused("a worker runs nothing in its own process")


def _end(connection: ServerConnection, result: Any, error: BaseException | None) -> None:
    try:
        if isinstance(error, ToolRefused):
            _answer(connection, frames.REFUSED, str(error).encode("utf-8", "replace"))
        elif error is not None:
            _answer(connection, frames.ERROR, pack_error(error))
        else:
            _answer(connection, frames.RESULT, pack(result))
    except ToolRefused as refused:
        _answer(connection, frames.REFUSED, str(refused).encode("utf-8", "replace"))


def _answer(connection: ServerConnection, kind: bytes, payload: bytes) -> None:
    try:
        connection.send(kind + payload)
    except (WebSocketException, OSError) as error:
        log.debug("nobody waits for this any more: %r", error)


def run_worker(modules: list[str], host: str, port: int) -> None:
    """Serve until interrupted."""
    worker = Worker(tools_of(modules), os.environ.get(KEY_VARIABLE), host, port)
    log.warning("worker on %s:%d serves %s", host, worker.port, ", ".join(worker.tools))
    try:
        with contextlib.suppress(KeyboardInterrupt):
            worker.serve()
    finally:
        worker.close()
