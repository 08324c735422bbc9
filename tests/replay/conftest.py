"""Small recordings written by the tests, and the recorded endpoint on a real socket."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from agentspec.proxy.replay.endpoint import Pace, RecordedEndpoint
from agentspec.proxy.replay.recordings import load
from agentspec.proxy.replay.serve import serving

AT_ONCE = Pace(tokens_per_s=float("inf"), ttft_ms=0)

WEATHER: dict[str, Any] = {
    "source": "made_here",
    "task_id": "weather",
    "system_ref": "guide",
    "tools_ref": "made",
    "steps": [
        {"role": "assistant", "content": "Hello, how can I help?"},
        {"role": "user", "content": "Compare Zürich and Oslo\u2028please"},
        {
            "role": "assistant",
            "reasoning": "Both cities are needed, so ask for both at once.",
            "content": "Looking both up.",
            "tool_calls": [
                {"id": "toolu_a", "name": "weather", "arguments": {"city": "Zürich\u2028", "days": 3}},
                {"id": "toolu_b", "name": "weather", "arguments": {"city": "Oslo", "days": 3}},
            ],
        },
        {"role": "tool", "tool_call_id": "toolu_a", "tool_result": '{"sky": "rain"}'},
        {"role": "tool", "tool_call_id": "toolu_b", "tool_result": "Error: no such city"},
        {"role": "assistant", "content": "Rain in Zürich; Oslo is unknown."},
        {"role": "user", "content": "Thanks"},
        {"role": "assistant", "tool_calls": [{"name": "hang_up", "arguments": {}}]},
    ],
}
STOCK: dict[str, Any] = {
    "source": "made_here",
    "task_id": "stock",
    "steps": [
        {"role": "user", "content": "How many are left?"},
        {"role": "assistant", "tool_calls": [{"name": "count", "arguments": {"item": "nail"}}]},
        {"role": "tool", "tool_result": {"left": 7}},
        {"role": "assistant", "content": "Seven."},
    ],
}
OTHER_STOCK = {**STOCK, "steps": [*STOCK["steps"][:3], {"role": "assistant", "content": "7"}]}
TOOLS = {"made": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]}


def write(folder: Path, *recordings: dict[str, Any]) -> Path:
    """Write recordings the way they are handed out, prompts and tools one folder up."""
    file = folder / "trajectories" / "made.jsonl.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, recordings)).encode()))
    (folder / "prompts.json.gz").write_bytes(gzip.compress(json.dumps({"guide": "Be brief."}).encode()))
    (folder / "tools.json.gz").write_bytes(gzip.compress(json.dumps(TOOLS).encode()))
    return file


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return write(tmp_path, WEATHER, STOCK, OTHER_STOCK)


Connect = Callable[..., openai.OpenAI]


@pytest.fixture
def connect(made: Path) -> Iterator[Connect]:
    """Start the recorded endpoint at a pace and give a client of it."""
    with ExitStack() as stack:

        def start(pace: Pace = AT_ONCE) -> openai.OpenAI:
            url = stack.enter_context(serving(RecordedEndpoint(load(made), pace)))
            return stack.enter_context(openai.OpenAI(base_url=url, api_key="none", max_retries=0))

        yield start
