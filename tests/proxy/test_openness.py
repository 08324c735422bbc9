"""Serving beyond this machine: only with a key; in one process only. One clear line where it is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from agentspec.config import load
from agentspec.errors import ConfigError
from agentspec.proxy.doors import check_openness, hash_of, new_key

COMMAND = [sys.executable, "-m", "agentspec.proxy"]
SERVE = ("serve", "--upstream", "http://127.0.0.1:1/v1", "--port", "0")
KEY = new_key()
KEYS = f'[[keys]]\ntenant = "acme"\nsha256 = "{hash_of(KEY).hex()}"\n'

Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """started(*arguments, file=…, **environment): the command in an empty folder with this agentspec.toml."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("AGENTSPEC_")}
    own = {"XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1", "TERM": "dumb"}
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str, file: str = "", **more: str) -> subprocess.Popen[str]:
        (tmp_path / "agentspec.toml").write_text(file)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=tmp_path, env={**kept, **own, **more}, text=True, **pipes
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def refused(process: subprocess.Popen[str], *told: str) -> None:
    out, error = process.communicate(timeout=25)
    lines = [line for line in error.splitlines() if line.strip()]
    assert (process.returncode, len(lines)) == (2, 1), error
    assert lines[0].startswith("agentspec: ")
    assert [text for text in told if text not in lines[0]] == []
    assert KEY not in out + error


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_beyond_this_machine_nothing_is_served_without_a_key(started: Started, host: str) -> None:
    refused(started(*SERVE, "--host", host), "setting host", "agentspec keys new")


def test_several_processes_are_refused(started: Started) -> None:
    refused(started(*SERVE, file="workers = 2\n" + KEYS), "setting workers", "1 worker")


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ('[[keys]]\ntenant = "acme"\nsha256 = "abc"\n', "keys.0.sha256"),
        (f'[[keys]]\ntenant = ""\nsha256 = "{"0" * 64}"\n', "keys.0.tenant"),
        (f'[[keys]]\ntenant = "acme"\nkey = "{KEY}"\n', "keys.0"),
        ("max_header_bytes = 0\n", "max_header_bytes"),
    ],
    ids=["no hash", "no tenant", "no hash but a key", "no header"],
)
def test_a_key_that_is_none_is_named_without_being_told(tmp_path: Path, file: str, told: str) -> None:
    (tmp_path / "x.toml").write_text(file)
    with pytest.raises(ConfigError, match=re.escape(told)) as refusal:
        load({}, tmp_path / "x.toml")
    assert KEY not in str(refusal.value)


def test_with_a_key_it_serves_beyond_this_machine_and_asks_everybody_for_it(started: Started) -> None:
    process = started(*SERVE, "--host", "0.0.0.0", file=KEYS)
    assert process.stdout is not None
    found = re.search(r"http://0\.0\.0\.0:(\d+)/v1", process.stdout.readline())
    assert found
    url = f"http://127.0.0.1:{found[1]}"
    with httpx.Client(trust_env=False, headers={"host": "proxy.corp"}) as client:
        assert client.get(f"{url}/agentspec/status").status_code == 401
        assert client.get(f"{url}/agentspec/status", headers={"x-api-key": KEY}).status_code == 200
        body = {"model": "m", "input": "x"}
        answer = client.post(f"{url}/v1/responses", json=body, headers={"authorization": f"Bearer {KEY}"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    process.terminate()
    out, error = process.communicate(timeout=15)
    assert "upstream_unreachable" in error
    assert KEY not in out + error


def test_the_key_that_the_command_makes_is_taken(started: Started) -> None:
    made, error = started("keys", "new", "acme").communicate(timeout=25)
    key = re.search(r"ask-[\w-]{40,}", made)
    block = re.search(r'\[\[keys\]\]\s+tenant = "acme"\s+sha256 = "([0-9a-f]{64})"', made)
    assert key and block, made + error
    assert hash_of(key[0]).hex() == block[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_on_this_machine_no_key_is_needed(host: str) -> None:
    check_openness(load({"upstream": "http://127.0.0.1:1/v1", "host": host}))


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::ffff:192.0.2.7", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_any_other_address_is_open_to_others(host: str) -> None:
    with pytest.raises(ConfigError, match="setting host"):
        check_openness(load({"upstream": "http://127.0.0.1:1/v1", "host": host}))


def test_settings_show_no_key_in_the_clear(started: Started) -> None:
    file = f'{KEYS}[[upstreams]]\nurl = "http://127.0.0.1:1/v1"\nmodels = ["*"]\nkey = "sk-hush"\n'
    out, error = started("config", "show", file=file).communicate(timeout=25)
    assert "sk-hush" not in out + error
    assert "acme" in out
