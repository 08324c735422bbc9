"""The command line as a user meets it: one clear line and a sensible exit code, never a traceback."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentspec.memory.ledger import SqlLedger

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-m", "agentspec.proxy"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("AGENTSPEC_")}
    return {**kept, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1", "TERM": "dumb"}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run the command in an empty folder with a state of its own."""

    def command(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env={**environment, **more},
            capture_output=True,
            text=True,
            timeout=25,
            check=False,
        )

    return command


def refused(done: subprocess.CompletedProcess[str], *told: str, code: int = 2) -> None:
    assert "Traceback" not in done.stderr + done.stdout
    assert done.returncode == code, done.stderr
    for text in told:
        assert text in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if done.stderr.startswith("agentspec: "):
        assert len(lines) == 1, done.stderr


def test_help_names_every_command(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    for name in ("serve", "config", "traces", "trace", "verifier", "models", "bench"):
        assert name in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [("serve", "--help"), ("config", "--help"), ("traces", "--help"), ("bench", "--help"), ("verifier", "--help")],
)
def test_every_command_has_help(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.returncode, "Usage" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    "arguments", [("sevre",), ("serve", "--nope"), ("trace",), ("traces", "--limit", "many"), ("config", "x")]
)
def test_a_slip_of_the_pen_is_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    refused(run(*arguments))


def test_serving_without_an_endpoint_says_what_to_give(run: Run) -> None:
    refused(run("serve", "--port", "0"), "--upstream http://HOST:PORT/v1", "AGENTSPEC_UPSTREAM")


def test_a_port_in_use_is_named(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused(run("serve", "--upstream", "http://127.0.0.1:1/v1", "--port", port), f"port {port} is in use", "--port")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com", ""])
def test_an_address_that_others_reach_is_refused(run: Run, host: str) -> None:
    refused(run("serve", "--upstream", "http://127.0.0.1:1/v1", "--host", host, "--port", "0"), "host")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--engine", "gpt"), "gpt"),
        (("--upstream", "127.0.0.1:8000"), "http://127.0.0.1:8000/v1"),
        (("--config", "missing.toml"), "missing.toml"),
        (("--database", "nonsense"), "setting database"),
        (("--database", "sqlite:////proc/nope/x.sqlite3"), "setting database"),
        (("--port", "99999"), "port"),
        (("--probe-money-cap-usd", "1"), "price_input_usd_per_mtok"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(run: Run, arguments: tuple[str, ...], told: str) -> None:
    refused(run("serve", "--upstream", "http://127.0.0.1:1/v1", "--port", "0", *arguments), told)


def test_a_wrong_environment_is_named(run: Run) -> None:
    refused(run("serve", AGENTSPEC_PORT="many", AGENTSPEC_UPSTREAM="http://127.0.0.1:1/v1"), "port")


def test_settings_are_shown_with_where_they_come_from_and_without_secrets(run: Run, tmp_path: Path) -> None:
    (tmp_path / "agentspec.toml").write_text('upstream = "http://[::1]:9/v1"\nupstream_key = "sk-hush"\n')
    done = run("config", "show", AGENTSPEC_PORT="5", AGENTSPEC_DATABASE="postgresql+psycopg://u:hush@h/d")
    assert done.returncode == 0, done.stderr
    assert re.search(r"upstream +http://\[::1\]:9/v1 +file", done.stdout)
    assert re.search(r"port +5 +environment", done.stdout)
    assert re.search(r"host +127\.0\.0\.1 +default", done.stdout)
    assert "hush" not in done.stdout


def test_no_traces_yet_says_how_to_get_some(run: Run) -> None:
    done = run("traces")
    assert (done.returncode, "base_url" in done.stdout, done.stderr) == (0, True, "")


def test_a_trace_that_is_not_there_is_told(run: Run) -> None:
    refused(run("trace", "nope"), "'nope'", "agentspec traces")


@pytest.mark.parametrize("command", [("traces",), ("trace", "x")])
def test_a_ledger_that_cannot_be_opened_is_told(run: Run, command: tuple[str, ...]) -> None:
    refused(run(*command, "--database", "nosuch://x/y"), "setting database")


@pytest.fixture
def served(tmp_path: Path, environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `agentspec serve` before an endpoint that is away, and its base URL as printed."""
    arguments = ["serve", "--upstream", "http://127.0.0.1:1/v1", "--port", "0", "--engine", "vllm"]
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/v1", line)
    assert found, line
    yield process, found[0]
    process.kill()
    process.wait()
    process.stdout.close()


def test_an_endpoint_that_is_away_is_told_to_the_agent(served: tuple[subprocess.Popen[str], str]) -> None:
    body = b'{"model":"m","messages":[]}'
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{served[1]}/chat/completions", body, timeout=10)
    assert caught.value.code == 502
    assert b"upstream_unreachable" in caught.value.read()
    served[0].terminate()
    assert served[0].stdout is not None
    logged = [line for line in served[0].stdout.read().splitlines() if "upstream_unreachable" in line]
    assert len(logged) == 1
    assert "--upstream" in logged[0], "a log line that is not on a terminal is one line"


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_when_told_without_a_word(served: tuple[subprocess.Popen[str], str], sign: signal.Signals) -> None:
    process, url = served
    with urllib.request.urlopen(url.replace("/v1", "/healthz"), timeout=10) as answer:
        assert answer.status == 200
    process.send_signal(sign)
    assert process.stdout is not None
    told = process.stdout.read()
    assert process.wait(10) in (0, 130, -sign)
    assert "Traceback" not in told


def test_traces_and_one_of_them_are_shown(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    ledger = SqlLedger(url)
    whole = {"model": "[/b]", "began_at": 1000.0, "duration_s": 2.0, "status": 200, "calls": 1, "completion_tokens": 5}
    ledger.record("turns", {"id": "1", "trajectory": "tenant:[/x]", **whole, "note": ""})
    bet = {"predictor": "probe", "tool": "f", "probability": 0.5, "offered_s": 0.5, "latency_s": 1.0, "saved_s": 0.75}
    ledger.record("bets", {"id": "1", "turn": "1", **bet, "outcome": "hit", "reason": ""})
    asyncio.run(ledger.close())
    listed, one = run("traces", "--database", url), run("trace", "tenant", "--database", url)
    assert (listed.returncode, one.returncode) == (0, 0), listed.stderr + one.stderr
    assert "tenant:[/x]" in listed.stdout
    assert "saved 0.75 s" in one.stdout


def test_a_negative_limit_is_a_usage_error(run: Run) -> None:
    refused(run("traces", "--limit", "-1"))


@pytest.mark.parametrize("command", ["traces", "trace x"])
def test_a_database_that_is_somebody_elses_is_told(run: Run, tmp_path: Path, command: str) -> None:
    file = tmp_path / "app.sqlite3"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE turns (id INTEGER, player TEXT)")
    refused(run(*command.split(), "--database", f"sqlite:///{file}"), "database")


def test_an_open_stream_does_not_keep_it_from_stopping(tmp_path: Path, environment: dict[str, str]) -> None:
    """The endpoint never ends its answer; the client reads on."""
    with socket.create_server(("127.0.0.1", 0)) as endpoint:
        upstream = f"http://127.0.0.1:{endpoint.getsockname()[1]}/v1"
        arguments = [*COMMAND, "serve", "--upstream", upstream, "--port", "0"]
        with subprocess.Popen(arguments, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                port = int(re.findall(r":(\d+)/v1", process.stdout.readline())[0])
                with socket.create_connection(("127.0.0.1", port)) as client:
                    body = b'{"model":"m","messages":[]}'
                    head = (
                        f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
                    )
                    client.sendall(head.encode() + body)
                    answering, _ = endpoint.accept()
                    with answering:
                        answering.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
                        assert client.recv(1000)
                        process.send_signal(signal.SIGTERM)
                        assert process.wait(15) in (0, -signal.SIGTERM)
            finally:
                process.kill()
