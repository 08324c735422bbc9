"""A real Arize Phoenix takes our spans: runs group by session, kinds are right, tools are not counted twice."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.scripted import eventually
from tests.sight.shop import SPANS_A_SESSION, play

pytestmark = [pytest.mark.phoenix, pytest.mark.timeout(300)]

PYTHON = os.environ.get("AGENTSPEC_PHOENIX_PYTHON", "")
KEEP = os.environ.get("AGENTSPEC_PHOENIX_KEEP")
"""Base URL of a Phoenix that runs already, to look at what the test has sent."""
_START_S = 150.0

SESSIONS = """
query ($id: ID!) { node(id: $id) { ... on Project { sessions(first: 100) { edges { node {
  sessionId numTraces traces(first: 100) { edges { node { spans(first: 100) { edges { node {
    name spanKind spanId parentId statusCode tokenCountTotal attributes
  } } } } } }
} } } } } }
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a Phoenix on loopback, with a database of its own."""
    if KEEP:
        yield KEEP
        return
    if not PYTHON or not Path(PYTHON).exists():
        pytest.skip("AGENTSPEC_PHOENIX_PYTHON names no python of an environment with arize-phoenix")
    folder, port = tmp_path_factory.mktemp("phoenix"), free_port()
    environment = {
        **os.environ,
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    environment.pop("PYTHONPATH", None)
    with (folder / "log").open("wb") as log:
        command = [str(Path(PYTHON).parent / "phoenix"), "serve"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: alive(port, process), "Phoenix answers", _START_S)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def alive(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "Phoenix ended"
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).status_code == 200
    except httpx.HTTPError:
        time.sleep(0.2)
        return False


def asked(phoenix: str, query: str, **variables: Any) -> Any:
    body = {"query": query, "variables": variables}
    answer = httpx.post(f"{phoenix}/graphql", json=body, timeout=30, trust_env=False).json()
    assert "errors" not in answer, answer
    return answer["data"]


def nodes(connection: Any) -> list[Any]:
    return [edge["node"] for edge in connection["edges"]]


def sessions(phoenix: str, project: str) -> dict[str, list[Any]]:
    """The spans of each session of a project."""
    found = nodes(asked(phoenix, "{ projects { edges { node { id name } } } }")["projects"])
    identity = next((one["id"] for one in found if one["name"] == project), None)
    if identity is None:
        return {}
    told = nodes(asked(phoenix, SESSIONS, id=identity)["node"]["sessions"])
    return {
        one["sessionId"]: [span for trace in nodes(one["traces"]) for span in nodes(trace["spans"])] for one in told
    }


def test_runs_group_by_session_with_right_kinds_and_no_tool_twice(
    phoenix, endpoint, start, join, agent_of, monkeypatch
):
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")  # Phoenix takes traces only
    project = f"agentspec-{os.getpid()}"
    proxy = start(otel_endpoint=phoenix, otel_service=project, keep_content=True)
    for name in ("chat-1", "chat-2"):
        play(endpoint, proxy, join, agent_of, name)
    proxy.claimed(4)
    proxy.stop()
    expected = [sum(SPANS_A_SESSION.values())] * 2

    def counts() -> list[int]:
        return [len(spans) for spans in sessions(phoenix, project).values()]

    eventually(lambda: counts() == expected, "all spans are there", 30.0)
    told = sessions(phoenix, project)
    assert told.keys() == {"chat-1", "chat-2"}
    for spans in told.values():
        assert Counter(span["spanKind"].upper() for span in spans) == SPANS_A_SESSION
        names = Counter(span["name"].split()[0] for span in spans)
        assert names == {"chat": 3, "execute_tool": 2, "speculate": 2}
        assert sum(span["tokenCountTotal"] or 0 for span in spans) == 435
        assert {span["statusCode"] for span in spans} <= {"OK", "UNSET"}
        ids = {span["spanId"] for span in spans}
        assert all(span["parentId"] in ids for span in spans if not span["name"].startswith("chat"))
        assert not any("0123456789abcdefghij" in str(span["attributes"]) for span in spans)
