"""Wire and streaming, row 3: finish reasons beside log-probabilities, and every spelling of reasoning."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from tests.pitfalls.playing import fetch, plays, read, says, streams
from tests.wire import dialects
from tests.wire.answers import REASONING, TEXT, Answer, Part, heard
from tests.wire.dialects import Dialect, frames
from tests.wire.say_chat import chunk

pytestmark = pytest.mark.anyio

LOGPROBS = {"content": [{"token": "Hi", "logprob": -0.0, "bytes": [72, 105], "top_logprobs": []}], "refusal": None}


def with_logprobs(finish: str | None, content: str | None) -> dict[str, Any]:
    found = chunk({"content": content} if content else {}, finish)
    found["choices"][0]["logprobs"] = LOGPROBS
    return found


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "content_filter", "odd_reason"])
@pytest.mark.parametrize("together", [True, False])
async def test_a_finish_reason_beside_logprobs_arrives(
    endpoint: Any, client: httpx.AsyncClient, proxy: Any, reason: str, together: bool
) -> None:
    """Row: "`finish_reason` lost with logprobs"."""
    last = [with_logprobs(reason, "Hi")] if together else [with_logprobs(None, "Hi"), with_logprobs(reason, None)]
    data = frames([*last, "[DONE]"])
    endpoint.answer = streams(data)
    got = await fetch(client, dialects.chat.path, dialects.chat.request(logprobs=True))
    assert got.body == data
    told = heard(read(dialects.chat, got.body, True))
    assert (told.text, told.reason) == ("Hi", reason)
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=0) as sdk:
        stream = await sdk.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True, logprobs=True
        )
        choices = [part.choices[0] async for part in stream]
    assert choices[-1].finish_reason == reason
    assert choices[-1].logprobs is not None


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reasoning", "because"),
        ("reasoning_content", "because"),
        ("reasoning_details", [{"type": "reasoning.text", "text": "because", "signature": "x=="}]),
        ("reasoning_items", [{"id": "rs_1", "encrypted_content": "x=="}]),
        ("thinking_blocks", [{"type": "thinking", "thinking": "because"}]),
        ("provider_specific_fields", {"thought_signature": "x=="}),
    ],
)
async def test_every_spelling_of_reasoning_arrives(
    endpoint: Any, client: httpx.AsyncClient, field: str, value: Any, streamed: bool
) -> None:
    """Row: "reasoning fields (`reasoning`, `reasoning_content`, `reasoning_details`, `reasoning_items`) dropped"."""
    said = {"role": "assistant", "content": "so", field: value}
    if streamed:
        data = frames([chunk(said), chunk({}, "stop"), "[DONE]"])
        endpoint.answer = streams(data)
    else:
        whole = {"id": "x", "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}
        data = frames([whole])[len(b"data: ") :]
        endpoint.answer = says(data)
    got = await fetch(client, dialects.chat.path, dialects.chat.request(stream=streamed))
    assert got.body == data
    told = heard(read(dialects.chat, got.body, streamed))
    assert (told.text, told.reason) == ("so", "stop")
    if field in ("reasoning", "reasoning_content"):
        assert told.reasoning == "because"


async def test_reasoning_comes_as_reasoning_and_not_as_text(
    endpoint: Any, client: httpx.AsyncClient, dialect: Dialect, streamed: bool
) -> None:
    """Row: reasoning fields dropped, in each API's own form."""
    answer = Answer((Part(REASONING, ("first ", "this\u2028", "then that")), Part(TEXT, ("The ", "answer"))))
    endpoint.answer, sent = plays(dialect, answer, streamed)
    got = await fetch(client, dialect.path, dialect.request(stream=streamed))
    assert got.body == sent
    told = heard(read(dialect, got.body, streamed))
    assert (told.reasoning, told.text) == ("first this\u2028then that", "The answer")


@pytest.mark.parametrize("kind", ["signature_delta", "citations_delta", "unknown_delta"])
async def test_deltas_of_other_kinds_pass_and_say_nothing(endpoint: Any, client: httpx.AsyncClient, kind: str) -> None:
    """Row: reasoning fields dropped: signatures must come back to the provider byte for byte."""
    delta = {"type": kind, "signature": "c2ln\u0085", "citation": {"cited_text": "x"}, "text": 5}
    block = {"type": "thinking", "thinking": "", "signature": ""}
    data = frames(
        [
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
            {"type": "message_stop"},
        ]
    )
    endpoint.answer = streams(data)
    got = await fetch(client, "/v1/messages", dialects.messages.request())
    assert got.body == data
    told = heard(read(dialects.messages, got.body, True))
    assert (told.text, told.reasoning, told.calls, told.reason) == ("", "", {}, "end_turn")
