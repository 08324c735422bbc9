"""Tier T3: a worker on another machine, reached over a WebSocket, which runs calls in tier T1 there.

One connection is one run: the call goes out, what came of it comes back, and closing the connection kills the run.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence

import msgspec
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from agentspec.errors import ToolRefused
from agentspec.runs import Order, Run, Work
from agentspec.tools_sandbox.tiers import frames
from agentspec.tools_sandbox.tiers.launching import ApartRun, Slots
from agentspec.tools_sandbox.tool import DeclaredTool

log = logging.getLogger("agentspec.remote")

PATH = "/agentspec/worker"
KEY_VARIABLE = "AGENTSPEC_WORKER_KEY"
_OPEN_LIMIT_S = 5.0


class RemoteJob(msgspec.Struct, frozen=True):
    """A call as it goes to a worker. The working folder is the worker's own."""

    module: str
    qualname: str
    seal: str
    arguments: dict[str, object]
    form: str
    env: dict[str, str]
    network: bool
    subprocesses: bool
    memory_bytes: int
    timeout_s: float


class RemoteTier:
    """Runs calls on workers, at most `max_running` at a time."""

    name = "T3"

    def __init__(self, max_running: int = 16) -> None:
        self._max_running = max_running
        self.forget_everything()

    def forget_everything(self) -> None:
        self._slots = Slots(self._max_running)

    def prepare(self, tools: Sequence[DeclaredTool]) -> None:
        """A worker imports its tools when it starts."""

    def close(self) -> None:
        """Each run has its own connection; nothing else is open."""

    def start(self, work: Work) -> Run:
        """Start the work and return at once.

        Raises:
            ToolRefused: too many runs already, or there is no key.
        """
        key = os.environ.get(KEY_VARIABLE)
        if not key:
            raise ToolRefused(f"the worker's key is missing: set {KEY_VARIABLE} here and at the worker")
        run = _RemoteRun(work, key, self._slots)
        run.launch()
        return run


class _RemoteRun(ApartRun):
    def __init__(self, work: Work, key: str, slots: Slots) -> None:
        super().__init__(work, slots)
        self._key = key
        self._connection: Connection | None = None

    def _run(self) -> tuple[bytes, bytes]:
        address, limit_s = self._order.sandbox.address, self._order.timeout_s
        headers = {"Authorization": f"Bearer {self._key}"}
        url = f"ws://{address}{PATH}"
        try:
            with connect(
                url, additional_headers=headers, open_timeout=_OPEN_LIMIT_S, max_size=frames.MAX_BYTES, proxy=None
            ) as connection:
                with self._lock:
                    self._connection = connection
                    if self._cancelled:
                        raise ToolRefused("it was cancelled")
                connection.send(msgspec.msgpack.encode(_remote_job(self._order)))
                answer = connection.recv(timeout=limit_s + _OPEN_LIMIT_S, decode=False)
        except (OSError, WebSocketException, TimeoutError) as error:
            raise ToolRefused(f"the worker at {address}: {error}") from error
        return answer[:1], answer[1:]

    def cancel(self) -> bool:
        with self._lock:
            self._cancelled = True
            connection = self._connection
        if connection is not None:
            threading.Thread(target=connection.close, daemon=True).start()  # it says goodbye first
        return True


def _remote_job(order: Order) -> RemoteJob:
    place = order.sandbox
    return RemoteJob(
        module=order.module,
        qualname=order.qualname,
        seal=order.seal,
        arguments=dict(order.arguments),
        form=order.form,
        env=dict(order.place.declared),
        network=place.network,
        subprocesses=place.subprocesses,
        memory_bytes=place.memory_bytes,
        timeout_s=order.timeout_s,
    )
