"""The engines that must conform: the bundled one, vLLM where it is installed, and one that runs elsewhere.

AGENTSPEC_VLLM_PYTHON: the python of vLLM's environment (`make test-vllm` makes one); it is started for these tests.
AGENTSPEC_CONFORMANCE_URL, AGENTSPEC_CONFORMANCE_ENGINE: the base URL of an engine that runs already, and which it is.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from agentspec.verifier.adapters.asking import root_of
from agentspec.verifier.adapters.protocol import Capabilities, DraftCount, EngineAdapter, EngineRequest
from agentspec.verifier.adapters.registry import adapter

_PATIENCE_S = 240.0
_START_S = 600.0


@dataclass
class Said:
    """A streamed answer as it came."""

    text: str = ""
    pieces: int = 0
    usage: dict[str, Any] = field(default_factory=dict)
    finish: str | None = None
    broken: bool = False
    """The connection ended, or an error came, before the answer was whole."""
    took_s: float = 0.0


class RunningEngine:
    """An engine that answers, and its adapter."""

    def __init__(self, name: str, url: str) -> None:
        self.adapter: EngineAdapter = adapter(name)
        self.url = url
        self.tokens = 200 if name == "bundled" else 20
        """How long answers are: a tiny model's must last until something has been sent to it."""
        self.can: Capabilities = self.adapter.capabilities(url)
        self._client = httpx.Client(base_url=root_of(url), timeout=_PATIENCE_S, trust_env=False)
        self.close = self._client.close

    def chat(
        self,
        body: dict[str, Any],
        request_id: str = "",
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Said:
        """Stream a chat; `meanwhile` is called once, when its first text is there."""
        said, began = Said(), time.perf_counter()
        header = self.adapter.request_header
        headers = {header.decode(): request_id} if header is not None and request_id else {}
        asked = {"model": self.can.model, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        with self._client.stream("POST", "/v1/chat/completions", json=asked | body, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            try:
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        self._take(json.loads(line[6:]), said, meanwhile)
            except httpx.RemoteProtocolError:
                said.broken = True
        said.took_s = time.perf_counter() - began
        return said

    def _take(self, chunk: dict[str, Any], said: Said, meanwhile: Callable[[], None]) -> None:
        said.broken = said.broken or "error" in chunk
        said.usage = chunk.get("usage") or said.usage
        for choice in chunk.get("choices", []):
            said.finish = choice.get("finish_reason") or said.finish
            piece = (choice.get("delta") or {}).get("content") or ""
            if piece:
                said.text += piece
                said.pieces += 1
                if said.pieces == 1:
                    meanwhile()

    def send(self, request: EngineRequest | None) -> int:
        """The status of the engine's answer."""
        assert request is not None
        return self._client.request(request.method, request.path, json=request.body).status_code

    def drafts(self) -> DraftCount:
        """Its totals so far."""
        return self.adapter.metered(self._client.get("/metrics").text) or DraftCount(0, 0)


def _started(*options: str) -> Iterator[str]:
    """An engine as `agentspec verifier start` starts it; its base URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "agentspec.proxy", "verifier", "start", "--port", str(port), *options]
    with tempfile.TemporaryFile() as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            own, deadline = adapter(options[1]), time.monotonic() + _START_S
            while not own.health(f"http://127.0.0.1:{port}").up:
                if engine.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    pytest.fail(f"the engine did not start:\n{log.read()[-4000:].decode(errors='replace')}")
                time.sleep(1.0)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            os.killpg(engine.pid, signal.SIGTERM)
            engine.wait(60)


def _vllm(method: str) -> Any:
    missing = pytest.mark.skipif(not os.environ.get("AGENTSPEC_VLLM_PYTHON"), reason="AGENTSPEC_VLLM_PYTHON is not set")
    return pytest.param(f"vllm {method}", marks=[pytest.mark.vllm, pytest.mark.timeout(900), missing])


@pytest.fixture(scope="session", params=["bundled", "elsewhere", _vllm("external"), _vllm("suffix")])
def engine(request: pytest.FixtureRequest) -> Iterator[RunningEngine]:
    """An engine that answers."""
    kind = request.param
    started = None
    if kind == "bundled":
        name, url = kind, request.getfixturevalue("base_url")
    elif kind == "elsewhere":
        name, url = os.environ.get("AGENTSPEC_CONFORMANCE_ENGINE", ""), os.environ.get("AGENTSPEC_CONFORMANCE_URL", "")
        if not url:
            pytest.skip("no other engine runs: AGENTSPEC_CONFORMANCE_URL is not set")
    else:
        name, method = kind.split()
        options = ("--speculate", method, "--threads", "2", "--max-context", "3072")
        started = _started("--engine", name, *options)
        url = next(started)
    running = RunningEngine(name, url)
    yield running
    running.close()
    if started is not None:
        next(started, None)
