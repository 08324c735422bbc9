"""Adapters against recorded exchanges: what they ask is what was recorded, and they read what was answered.

Each file says where it comes from: measured on a real engine, or written from an engine's documented interface.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentspec.errors import UpstreamError
from agentspec.verifier.adapters.protocol import EngineRequest
from agentspec.verifier.adapters.registry import adapter

FILES = sorted((Path(__file__).parent / "recorded").glob("*.json"))
CALL = '{"name": "get", "arguments": {"key": "A"}}'


class Replayed:
    """Answers what was recorded, and 404 to what was not."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self.recorded = recorded
        replayed = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                status, raw = replayed.answer(self.command, self.path, body)
                self.send_response(status)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = _answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        for exchange in self.recorded["exchanges"]:
            if exchange["request"] == {"method": method, "path": path, **({"body": body} if body is not None else {})}:
                answer = exchange["response"]
                raw = json.dumps(answer["json"]) if "json" in answer else answer["text"]
                return answer["status"], raw.encode()
        return 404, b"{}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(params=FILES, ids=[file.stem for file in FILES])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, Replayed]]:
    replayed = Replayed(json.loads(request.param.read_text()))
    yield request.param.stem, replayed
    replayed.stop()


def test_it_is_said_where_an_exchange_comes_from(engine: tuple[str, Replayed]) -> None:
    source = engine[1].recorded["source"]
    assert source.startswith(("measured: ", "documented, not measured: "))


def test_an_engine_answers_and_says_what_it_can_do(engine: tuple[str, Replayed]) -> None:
    name, replayed = engine
    own = adapter(name)
    for url in (replayed.url, replayed.url + "/v1"):
        assert own.health(url).up
        assert json.loads(json.dumps(own.capabilities(url).as_dict())) == replayed.recorded["capabilities"]


def test_what_is_sent_to_a_running_request_is_what_was_recorded(engine: tuple[str, Replayed]) -> None:
    name, replayed = engine
    own = adapter(name)
    asked = [own.offer_drafts("turn-1", [CALL]), own.withdraw_drafts("turn-1"), own.cancel("turn-1")]
    for one in [request for request in asked if request is not None]:
        assert send(replayed.url, one) == 200, one


def test_an_engine_that_is_away_is_told_of(engine: tuple[str, Replayed]) -> None:
    name, replayed = engine
    replayed.stop()
    health = adapter(name).health(replayed.url)
    assert (health.up, health.status) == (False, None)
    assert replayed.url in health.why
    with pytest.raises(UpstreamError, match="cannot reach"):
        adapter(name).capabilities(replayed.url)


def test_an_engine_that_is_still_loading_is_not_up() -> None:
    loading = Replayed({"exchanges": [{"request": {"method": "GET", "path": "/health"},
                                       "response": {"status": 503, "text": ""}}]})  # fmt: skip
    health = adapter("sglang").health(loading.url)
    loading.stop()
    assert (health.up, health.status, health.why) == (False, 503, "/health answers 503")


def send(url: str, request: EngineRequest) -> int:
    return httpx.request(request.method, url + request.path, json=request.body, trust_env=False).status_code
