"""The servers that the benchmark measures, as processes on cores of their own, and what they use."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from agentspec.errors import ConfigError
from agentspec.proxy.bench.wire_bodies import TOOL_NAMES
from agentspec.proxy.bench.wire_endpoint import MODEL, Beat
from agentspec.proxy.bench.wire_load import KEY, Target
from agentspec.tools_sandbox.connect import Connection, connect
from agentspec.tools_sandbox.declare import speculate

DIRECT, OFF, ON, LITELLM = "direct", "off", "on", "litellm"
_START_LIMIT_S = 90.0
_STOP_LIMIT_S = 5.0
_MODULE = "agentspec.proxy.bench.wire_endpoint"
_LITELLM_MAIN = "from litellm import run_server; run_server()"
_LITELLM_VERSION = (
    "import importlib.metadata as m, importlib.util as u, sys;"
    "sys.exit(1) if not (u.find_spec('litellm') and u.find_spec('fastapi')) else print(m.version('litellm'))"
)
_LITELLM_ENVIRONMENT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}


@dataclass(frozen=True, slots=True)
class Cores:
    """Where what is measured runs, and where endpoint and load generator do."""

    server: int
    load: int

    @property
    def apart(self) -> bool:
        """Whether the two are different cores."""
        return self.server != self.load

    @staticmethod
    def usable() -> Cores:
        """The last and the first core of those that this process may use."""
        cores = sorted(os.sched_getaffinity(0))
        return Cores(cores[-1], cores[0])


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Keep this process, and the children that it starts here, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass
class Child:
    """A command that runs on one core until the block ends.

    Attributes:
        log: where its output goes; the end of it is told when it does not start.
    """

    name: str
    command: list[str]
    core: int
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        with self.log.open("wb") as log, on_core(self.core):
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self.environment},
                    cwd=self.log.parent,  # no settings file of the user's
                )
            except OSError as error:
                raise ConfigError(f"{self.name} did not start: {error}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.resume()
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Return when it is ready.

        Raises:
            ConfigError: it ended, or was not ready in time; with the last line that it wrote.
        """
        deadline = time.monotonic() + _START_LIMIT_S
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            if ready():
                return
            time.sleep(0.05)  # nothing tells when a port opens
        lines = self.log.read_text(errors="replace").strip().splitlines()
        raise ConfigError(f"{self.name} did not start: {lines[-1] if lines else 'it said nothing'}")

    def pause(self) -> None:
        """Stop it, so that what it does when it rests disturbs nobody who is measured."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        for pid in _family(process.pid) if process is not None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def cpu_s(self) -> float:
        """CPU time, user and system, of its threads and its children's, those that have ended included."""
        return sum(cpu_clock_s(pid) for pid in _family(self.pid))

    def rss_mb(self) -> float:
        """Resident memory of it and its children in MB."""
        return sum(_resident_bytes(pid) for pid in _family(self.pid)) / 1e6


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to the endpoint; `server` is what stands in between, if anything does."""

    name: str
    target: Target
    server: Child | None = None


def endpoint(folder: Path, core: int, beat: Beat) -> Child:
    """The measured endpoint; `port_of` has its port once it is there."""
    paced = ["--chunks", str(beat.chunks), "--interval-ms", str(beat.interval_s * 1000)]
    return Child("the endpoint", [sys.executable, "-m", _MODULE, *paced], core, folder / "endpoint.log")


def port_of(child: Child) -> int:
    """Wait for the one line that the endpoint writes."""
    child.wait_for(lambda: child.log.read_bytes().endswith(b"\n"))
    return int(child.log.read_text())


def proxy(folder: Path, core: int, upstream_port: int, *, speculation: bool) -> Arm:
    """agentspec before the endpoint, with a ledger of its own."""
    name, port = ON if speculation else OFF, free_port()
    command = [sys.executable, "-m", "agentspec.proxy", "serve", "--upstream", f"http://127.0.0.1:{upstream_port}/v1"]
    command += ["--port", str(port), "--database", f"sqlite:///{folder}/{name}.sqlite3", "--memory-database", ""]
    command.append("--speculation" if speculation else "--no-speculation")
    return Arm(name, Target(port), Child(f"agentspec ({name})", command, core, folder / f"{name}.log"))


def litellm(folder: Path, core: int, upstream_port: int, python: Path) -> Arm:
    """LiteLLM's proxy before the endpoint: one worker, telemetry and retries off."""
    port, config = free_port(), folder / "litellm.yaml"
    model = f"{{model: openai/{MODEL}, api_base: 'http://127.0.0.1:{upstream_port}/v1', api_key: none}}"
    config.write_text(
        f"model_list:\n  - {{model_name: {MODEL}, litellm_params: {model}}}\n"
        "general_settings: {dangerously_permit_weak_or_unset_master_key: true}\n"
        "litellm_settings: {telemetry: false, num_retries: 0}\n"
    )
    command = [str(python), "-c", _LITELLM_MAIN, "--config", str(config), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--num_workers", "1", "--telemetry", "False"]
    child = Child("litellm", command, core, folder / "litellm.log", _LITELLM_ENVIRONMENT)
    return Arm(LITELLM, Target(port), child)


def litellm_version(python: Path) -> str | None:
    """The version of `litellm[proxy]` that this interpreter has, or None."""
    try:
        found = subprocess.run([str(python), "-c", _LITELLM_VERSION], capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def answers(port: int) -> bool:
    """Whether an HTTP server answers there with a list of models."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v1/models", headers={"authorization": f"Bearer {KEY}"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def runtime_of(arm: Arm) -> Connection:
    """This process as a runtime of the proxy, with the 30 tools that the larger bodies name.

    Raises:
        ConfigError: the proxy does not welcome it.
    """
    connection = connect(f"http://127.0.0.1:{arm.target.port}", tools=[_tool(name) for name in TOOL_NAMES], api_key=KEY)
    if not connection.wait(10.0):
        connection.close()
        raise ConfigError("the proxy did not welcome the runtime")
    return connection


def _tool(name: str) -> Callable[[str], str]:
    def look_up(id: str) -> str:
        return f"record {id}"

    return speculate(look_up, effect="read", stable_for=30.0, name=name)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += (one for child in listed.read_text().split() for one in _family(int(child)))
    return found


def cpu_clock_s(pid: int) -> float:
    """The clock that clock_getcpuclockid(3) names: finer than the ticks in /proc/PID/stat. 0 for a process gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2) / 1e9
    except OSError:
        return 0.0


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
