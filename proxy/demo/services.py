"""The engine and the proxy as child processes that answer before we go on, and end with us."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

_STOP_PATIENCE_S = 15.0
_LOG_LINES_SHOWN = 20


class ServiceFailed(RuntimeError):
    """A child process ended, or did not answer in time; the message ends with the last lines it wrote."""


@dataclass
class Service:
    """A Python module that serves HTTP on a loopback port.

    Attributes:
        module: what `python -m` runs.
        patience_s: how long it may take until `/health` answers.
        waiting: called with the seconds waited so far, a few times a second.
    """

    name: str
    module: str
    arguments: list[str]
    port: int
    log: Path
    patience_s: float = 120.0
    waiting: Callable[[float], None] | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; we stop it in our own order
            )
        try:
            self._wait_until_healthy(self._process)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def leave_running(self) -> None:
        """Let it outlive us."""
        self._process = None

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _wait_until_healthy(self, process: subprocess.Popen[bytes]) -> None:
        began = time.monotonic()
        with httpx.Client(trust_env=False, timeout=2.0) as client:
            while (waited := time.monotonic() - began) < self.patience_s:
                if process.poll() is not None:
                    raise ServiceFailed(f"{self.name} ended with status {process.returncode}\n{self._last_lines()}")
                if _answers(client, f"{self.url}/health"):
                    return
                if self.waiting is not None:
                    self.waiting(waited)
                time.sleep(0.2)
        raise ServiceFailed(f"{self.name} did not answer within {self.patience_s:.0f} s\n{self._last_lines()}")

    def _last_lines(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES_SHOWN:])


def _answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def verifier(model: str, log: Path, waiting: Callable[[float], None] | None = None) -> Service:
    """The bundled engine, serving `model`; it drafts tokens from what probes wrote, and from nothing else.

    With its other drafters the turns of so small a model, which say little that was not said before, are over before
    a probe is.
    """
    port = free_port()
    arguments = ["--model", model, "--port", str(port), "--speculate", "external"]
    return Service("the engine", "agentspec.verifier", arguments, port, log, patience_s=600.0, waiting=waiting)


def proxy(engine_url: str, database_url: str, log: Path) -> Service:
    """agentspec in front of the engine, writing its books to `database_url`."""
    port = free_port()
    arguments = ["serve", "--upstream", f"{engine_url}/v1", "--engine", "agentspec"]
    arguments += ["--port", str(port), "--database", database_url, "--memory-database", "", "--holdout-share", "0"]
    return Service("the proxy", "agentspec.proxy", arguments, port, log, patience_s=60.0)
