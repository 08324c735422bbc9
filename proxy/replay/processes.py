"""The recorded endpoint and the proxy as processes of their own: neither shares an interpreter with the agent."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from agentspec.errors import ConfigError
from agentspec.proxy.replay.endpoint import Pace

_START_LIMIT_S = 30.0
_STOP_LIMIT_S = 5.0

SERVE = ("agentspec.proxy", "serve")
Told = Callable[[int], None]


@contextlib.contextmanager
def endpoint_process(files: Sequence[Path], pace: Pace) -> Iterator[str]:
    """Run the recorded endpoint; gives its base URL.

    Raises:
        ConfigError: it did not start; the message is its own.
    """
    paced = ["--tokens-per-s", str(pace.tokens_per_s), "--ttft-ms", str(pace.ttft_ms)]
    command = [sys.executable, "-m", "agentspec.proxy.replay", *map(str, files), *paced]
    with _running(command, "the recorded endpoint", stdout=subprocess.PIPE) as (process, log):
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        if not url:
            process.wait(_STOP_LIMIT_S)
            raise _not_started("the recorded endpoint", log)
        yield url


@contextlib.contextmanager
def proxy_process(
    upstream: str, database: str, *options: str, program: Sequence[str] = SERVE, told: Told | None = None
) -> Iterator[str]:
    """Run the agentspec proxy before an endpoint; gives its URL, without a path.

    Args:
        upstream: base URL of the endpoint, with its `/v1`.
        database: SQLAlchemy URL of the ledger; complete once the block has ended.
        options: further options of `agentspec serve`, or of the program in its place.
        program: module and arguments that serve.
        told: told the id of the process.

    Raises:
        ConfigError: it did not start; the message is its own.
    """
    port = _free_port()
    placed = ["--port", str(port), "--database", database, "--memory-database", "", "--holdout-share", "0"]
    command = [sys.executable, "-m", *program, "--upstream", upstream, *placed, *options]
    with _running(command, "the proxy") as (process, log):
        if told is not None:
            told(process.pid)
        _await_port(port, process, log)
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _running(
    command: list[str], what: str, stdout: int | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout or log, stderr=log)
        except OSError as error:
            raise ConfigError(f"{what} did not start: {error}") from error
        try:
            yield process, log
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def _await_port(port: int, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)  # nothing tells when a port opens
    raise _not_started("the proxy", log)


def _not_started(what: str, log: IO[bytes]) -> ConfigError:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return ConfigError(f"{what} did not start: {lines[-1] if lines else 'it said nothing'}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
