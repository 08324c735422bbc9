"""`agentspec verifier start` and `check` as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTSPEC_")}

    def command(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "agentspec.proxy", "verifier", *arguments],
            cwd=tmp_path,
            env={**kept, "NO_COLOR": "1", "TERM": "dumb", **more},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return command


def fake_environment(folder: Path, **modules: str) -> str:
    """A python that holds these modules, beside ours: a folder on its path."""
    for name, version in modules.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
        told = folder / f"{name}-{version}.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(("engine", "told"), [("vllm", "pip install vllm"), ("sglang", "pip install 'sglang[all]'")])
def test_a_missing_engine_is_one_line_that_says_what_to_do(run: Run, tmp_path: Path, engine: str, told: str) -> None:
    python = fake_environment(tmp_path)
    done = run("start", "--engine", engine, "--python", python)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert told in done.stderr and "--python" in done.stderr
    assert run("start", "--engine", engine, "--python", "/no/python").returncode == 2


def test_the_command_is_shown_and_what_follows_the_dashes_goes_on(run: Run, tmp_path: Path) -> None:
    python = fake_environment(tmp_path, vllm="0.32.0")
    done = run(
        "start", "--engine", "vllm", "--model", "a/b", "--show", "--", "--seed", "7", AGENTSPEC_VLLM_PYTHON=python
    )
    told = json.loads(done.stdout)
    assert told["command"][:5] == [python, "-m", "vllm.entrypoints.cli.main", "serve", "a/b"]
    assert told["command"][-2:] == ["--seed", "7"]
    assert told["environment"]["VLLM_NO_USAGE_STATS"] == "1"


def test_an_engine_is_started_in_the_place_of_the_command(run: Run, tmp_path: Path) -> None:
    """Signals and the exit status are the engine's own."""
    python = fake_environment(tmp_path, sglang="0.5.23")
    main = "import json, sys; print(json.dumps(sys.argv[1:])); raise SystemExit(7)"
    (tmp_path / "sglang" / "launch_server.py").write_text(main)
    done = run("start", "--engine", "sglang", "--model", "a/b", "--python", python, "--port", "81")
    assert done.returncode == 7
    line = json.loads(done.stdout)
    assert line[:2] == ["--model-path", "a/b"]
    assert "81" in line


def test_an_engine_that_is_away_is_said_to_be(run: Run) -> None:
    done = run("check", "--url", "http://127.0.0.1:1/v1", "--engine", "vllm", "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["health"]["up"], told["capabilities"]) == (False, None)
    assert "cannot reach http://127.0.0.1:1" in told["health"]["why"]
    assert "does not answer" in run("check", "--url", "http://127.0.0.1:1").stdout


class _Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        raw = b'{"data": [{"id": "m", "max_model_len": 4096}]}' if self.path == "/v1/models" else b"{}"
        self.send_response(200)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_what_an_engine_can_do_is_shown(run: Run) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Engine)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    done = run("check", "--url", url, "--engine", "sglang")
    server.shutdown()
    server.server_close()
    assert done.returncode == 0
    for told in ("4096 tokens", "higher numbers first", "close or id"):
        assert told in done.stdout
