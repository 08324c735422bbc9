"""The Vercel AI SDK gives the same through the proxy as without it: OpenAI Responses, OpenAI chat, Anthropic."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients import shop
from tests.clients.script import Failing, Text, anthropic_fault, openai_fault
from tests.clients.ways import Both, Way

SOURCE = Path(__file__).parent / "vercel"
INSTALL_LIMIT_S = 300

APIS = ("responses", "chat", "anthropic")

RunAgent = Callable[[Way, str, bool], Any]

pytestmark = [
    pytest.mark.parametrize("way", ["proxy"], indirect=True),
    pytest.mark.parametrize("api", APIS),
    pytest.mark.timeout(INSTALL_LIMIT_S + 60),
]
whole_and_streamed = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="session")
def agent_file() -> Path:
    """The agent's script beside its installed packages, which are kept for the next session."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    lock = hashlib.sha256((SOURCE / "package-lock.json").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentspec-tests"
    folder = cache / f"vercel-{lock}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("agent.mjs", "package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, folder)
    if not (folder / "installed").exists():
        _install(folder)
        (folder / "installed").touch()
    return folder / "agent.mjs"


def _install(folder: Path) -> None:
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=True)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm ci took more than {INSTALL_LIMIT_S} s")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"npm ci failed: {error.stderr.strip()[-300:]}")


@pytest.fixture(scope="session")
def run_agent(agent_file: Path) -> Iterator[RunAgent]:
    """run_agent(way, api, streamed): everything that a run gives its user, or how it failed."""
    plain = {"PATH": os.environ["PATH"]}
    with subprocess.Popen(["node", str(agent_file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=plain) as node:
        assert node.stdin is not None
        assert node.stdout is not None

        def run(way: Way, api: str, streamed: bool) -> Any:
            asked = {"root": way.root, "api": api, "streamed": streamed, "question": shop.QUESTION}
            node.stdin.write(json.dumps(asked).encode() + b"\n")
            node.stdin.flush()
            return json.loads(node.stdout.readline())

        yield run
        node.stdin.close()


@whole_and_streamed
def test_a_run_with_two_tools_ends_the_same(run_agent: RunAgent, both: Both, api: str, streamed: bool) -> None:
    busy = openai_fault(503, "busy", "Busy.", ("retry-after-ms", "5"))
    got = both.same(lambda way: run_agent(way, api, streamed), busy, *shop.LOOP)
    assert got["text"] == shop.ANSWER
    assert [result["output"] for step in got["steps"] for result in step["results"]] == shop.RESULTS
    assert got["usage"]["outputTokens"] == 3 * 17
    assert got["steps"][0]["response"]["headers"]["x-ratelimit-limit-requests"] == "500"
    assert ("parts" in got) == streamed


@whole_and_streamed
def test_a_run_that_the_endpoint_refuses_fails_the_same(
    run_agent: RunAgent, both: Both, api: str, streamed: bool
) -> None:
    fault = anthropic_fault if api == "anthropic" else openai_fault
    refusal = fault(400, "invalid_request_error", "No such tool.", ("retry-after", "9"))
    got = both.same(lambda way: run_agent(way, api, streamed), shop.LOOP[0], refusal)["failed"]
    assert (got["status"], got["retryable"], got["headers"]["retry-after"]) == (400, False, "9")
    assert got["text"] == "No such tool."


def test_a_stream_that_fails_midway_fails_the_same(run_agent: RunAgent, both: Both, api: str) -> None:
    got = both.same(lambda way: run_agent(way, api, True), [Text("Half an ans"), Failing("Overloaded")])
    assert "Overloaded" in json.dumps(got)
