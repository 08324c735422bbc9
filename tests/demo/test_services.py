"""Child processes that serve: they are waited for, and their last words are shown when they fail."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from agentspec.proxy.demo.services import Service, ServiceFailed, free_port

SERVER = """
import http.server, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "served.py"


def service(tmp_path: Path, **options: float) -> Service:
    port = free_port()
    return Service("it", "served", [str(port)], port, tmp_path / "log", **options)  # type: ignore[arg-type]


def test_it_answers_inside_the_block_and_is_gone_after(tmp_path: Path, module: Path) -> None:
    module.write_text(SERVER)
    with service(tmp_path) as running:
        assert httpx.get(f"{running.url}/health", trust_env=False).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{running.url}/health", trust_env=False)


def test_one_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path, module: Path) -> None:
    module.write_text("import sys; print('no such model'); sys.exit(2)")
    with pytest.raises(ServiceFailed, match="it ended with status 2\nno such model"), service(tmp_path):
        pass


def test_one_that_never_answers_is_given_up_and_stopped(tmp_path: Path, module: Path) -> None:
    module.write_text("import time; print('loading', flush=True); time.sleep(60)")
    with pytest.raises(ServiceFailed, match="did not answer within 1 s\nloading"), service(tmp_path, patience_s=1.0):
        pass
