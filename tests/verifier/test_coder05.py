"""With real weights: identity in a crowd, probes, and how much of a turn's keys the next turn finds."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from typing import Any

import pytest

from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.engine.interface import Event, Finished, Started, Submission, Token
from agentspec.verifier.server.request import chat_job
from agentspec.verifier.server.service import Service
from agentspec.verifier.verification.sampling import SamplingParams
from agentspec.verifier.weights import DEFAULT_CACHE

pytestmark = [
    pytest.mark.weights,
    pytest.mark.skipif(
        not (DEFAULT_CACHE / "coder05" / "model.safetensors").exists(), reason="coder05 has not been fetched"
    ),
]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
QUESTION = [{"role": "user", "content": "What is the weather in Paris? Say what you will do, then call the tool."}]


@pytest.fixture(scope="module")
def real() -> Iterator[Service]:
    service = Service(VerifierConfig(model="coder05"))
    yield service
    service.close()


def start(service: Service, body: dict[str, Any]) -> queue.SimpleQueue[Event]:
    job = chat_job({"temperature": 0, **body})
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    turn = service.turns.prepare(job)
    submission = Submission(
        prompt=turn.prompt,
        params=SamplingParams(temperature=0),
        max_new=job.options.max_new or 16,
        continuation=turn.continuation,
        constraint=turn.constraint(),
        priority=job.options.priority,
    )
    service.engine.submit(submission, events.put)
    return events


def gather(events: queue.SimpleQueue[Event]) -> tuple[Started, list[int]]:
    started, tokens = Started(0, 0), []
    while True:
        event = events.get(timeout=90)
        if isinstance(event, Started):
            started = event
        elif isinstance(event, Token):
            tokens.append(event.id)
        else:
            assert isinstance(event, Finished)
            return started, tokens


def written(service: Service, tokens: list[int]) -> str:
    return b"".join(map(service.text.piece, tokens)).decode()


@pytest.mark.timeout(300)
def test_a_turn_is_the_same_with_and_without_its_probe(real: Service) -> None:
    turn: dict[str, Any] = {"messages": QUESTION, "tools": TOOLS, "tool_choice": "required", "max_tokens": 24}
    opened = {"role": "assistant", "content": 'I will look it up.\n{"name": "'}
    probe = {**turn, "messages": [*QUESTION, opened], "continue_final_message": True, "priority": 10}
    _, alone = gather(start(real, turn))
    _, probed_alone = gather(start(real, probe))
    together = start(real, turn), start(real, probe), start(real, {**probe, "tool_choice": "none"})
    assert gather(together[0])[1] == alone
    started, probed = gather(together[1])
    gather(together[2])
    assert probed == probed_alone
    call = json.loads('{"name": "' + written(real, probed))
    assert call["name"] == "get_weather" and "Paris" in call["arguments"]["city"]
    assert started.cached_tokens >= started.prompt_tokens - 1


@pytest.mark.timeout(300)
def test_the_next_turn_finds_prompt_and_text_of_the_last(real: Service) -> None:
    plan = "I will look it up."
    call = {"function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}, "id": "1", "type": "function"}
    answer = {"role": "assistant", "content": plan, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "1", "content": "rain"}
    text = plan + '\n{"name": "get_weather", "arguments": {"city": "'
    wrote = {"messages": [*QUESTION, {"role": "assistant", "content": text}], "continue_final_message": True}
    first, _ = gather(start(real, {**wrote, "tools": TOOLS, "max_tokens": 8}))
    following, _ = gather(start(real, {"messages": [*QUESTION, answer, result], "tools": TOOLS, "max_tokens": 1}))
    assert (
        following.cached_tokens >= first.prompt_tokens - len(real.text.encode(text)) + len(real.text.encode(plan)) - 1
    )
