"""Forced calls over Responses and Messages: how their streams are read, and that the money cap counts them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agentspec.calls import ToolCall
from agentspec.config import Engine, Settings, load
from agentspec.events import TextDelta
from agentspec.protocols import Prediction
from agentspec.speculators.forks import ForcedCall
from agentspec.speculators.probe import ProbeSpeculator
from tests.contract.dialects import Item, Made, MessagesAnswers, Part, ResponsesAnswers, Text, Thought
from tests.speculators.turns import turn_of

pytestmark = pytest.mark.anyio

SOON = 2.0
APIS = ["responses", "messages"]
ANSWERS = {"responses": ResponsesAnswers(), "messages": MessagesAnswers()}
ORDER, OTHER = Made("get_order", {"order_id": "A1"}, "c_1"), Made("get_order", {"order_id": "}B2\u2028"}, "c_2")
INPUT_USD, OUTPUT_USD = 10.0, 100.0


def hosted(cap: float = 1.0, tokens: int = 100) -> Settings:
    prices = {"price_input_usd_per_mtok": INPUT_USD, "price_output_usd_per_mtok": OUTPUT_USD}
    return load({"engine": "openai", "probe_money_cap_usd": cap, "probe_tokens": tokens, **prices})


def usd(prompt_tokens: int, completion_tokens: int) -> float:
    return (prompt_tokens * INPUT_USD + completion_tokens * OUTPUT_USD) / 1e6


def written(api: str, *parts: Part) -> list[bytes]:
    return [step for step in ANSWERS[api].streamed(0, parts) if isinstance(step, bytes)]


def with_usage(raw: bytes, prompt_tokens: int, completion_tokens: int) -> bytes:
    """The same events with other token counts."""
    data = json.loads(raw.split(b"data: ", 1)[1])
    frame = data.get("response") or data.get("message") or data
    if frame.get("usage"):
        told = {"input_tokens": prompt_tokens, "output_tokens": completion_tokens}
        frame["usage"] = {name: told.get(name, count) for name, count in frame["usage"].items()}
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def telling(*raw: bytes, hang: bool = False) -> Any:
    async def answer(asked: Any) -> None:
        await asked.start()
        for piece in raw:
            asked.writer.write(piece)
            await asked.writer.drain()
        if hang:
            await asked.gone.wait()

    return answer


async def probe_once(fork: ForcedCall, turn: Any, log: Any) -> list[Prediction]:
    offers: list[Prediction] = []
    closed = len(log.closed)
    task = asyncio.create_task(ProbeSpeculator({Engine.VLLM: fork}, log, 10).speculate(turn, offers.append))
    turn.take(TextDelta("text"))
    await log.until(closed + 1, task)
    turn.end()
    await asyncio.wait_for(task, SOON)
    return offers


@pytest.mark.parametrize("api", APIS)
async def test_a_forced_call_is_offered(engine: Any, upstream: Any, log: Any, api: str) -> None:
    engine.script = telling(*written(api, Thought(), Text(), ORDER))
    offers = await probe_once(ForcedCall(hosted()), turn_of(api, upstream=upstream), log)
    assert [found.call for found in offers] == [ToolCall("get_order", {"order_id": "A1"})]
    assert 0 < offers[0].confidence < 1
    assert [probe.outcome for probe in log.closed] == ["predicted"]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_however_the_stream_is_cut_the_call_is_read(
    engine: Any, upstream: Any, log: Any, api: str, size: int
) -> None:
    raw = b"".join(written(api, Text(), OTHER))
    engine.script = telling(*(raw[i : i + size] for i in range(0, len(raw), size)))
    offers = await probe_once(ForcedCall(hosted()), turn_of(api, upstream=upstream), log)
    assert [found.call.arguments for found in offers] == [{"order_id": "}B2\u2028"}]


@pytest.mark.parametrize("api", APIS)
async def test_a_call_is_offered_before_the_stream_is_over(engine: Any, upstream: Any, log: Any, api: str) -> None:
    """What follows is not waited for: closing the connection stops the endpoint."""
    raw = written(api, ORDER)
    last = next(i for i, piece in enumerate(raw) if b"arguments.done" in piece or b"content_block_stop" in piece)
    engine.script = telling(*raw[: last + 1], hang=True)
    offers = await probe_once(ForcedCall(hosted()), turn_of(api, upstream=upstream), log)
    assert len(offers) == 1
    await asyncio.wait_for(engine.probes[0].gone.wait(), SOON)


BROKEN: dict[str, list[Part]] = {
    "nothing but text": [Text()],
    "no object": [Made("get_order", [1], "c")],
    "a call that the provider ran": [Item({"type": "mcp_call", "name": "x", "arguments": "{}", "server_label": "s"})],
    "a free-text call": [Item({"type": "custom_tool_call", "name": "x", "call_id": "c", "input": "{}"})],
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_what_is_no_call_is_not_offered(engine: Any, upstream: Any, log: Any, broken: str) -> None:
    engine.script = telling(*written("responses", *BROKEN[broken]))
    assert await probe_once(ForcedCall(hosted()), turn_of("responses", upstream=upstream), log) == []
    assert [probe.outcome for probe in log.closed] == ["no call"]


@pytest.mark.parametrize("api", APIS)
async def test_half_a_call_is_not_offered(engine: Any, upstream: Any, log: Any, api: str) -> None:
    raw = written(api, ORDER)
    half = next(i for i, piece in enumerate(raw) if b"order" in piece and b"delta" in piece)
    engine.script = telling(*raw[: half + 1])
    assert await probe_once(ForcedCall(hosted()), turn_of(api, upstream=upstream), log) == []


@pytest.mark.parametrize("api", APIS)
async def test_the_usage_that_is_told_is_what_is_paid(engine: Any, upstream: Any, log: Any, api: str) -> None:
    """No call in it, so it is read to its end, where both APIs tell what it cost."""
    engine.script = telling(*(with_usage(raw, 1000, 20) for raw in written(api, Text())))
    fork = ForcedCall(hosted())
    await probe_once(fork, turn_of(api, upstream=upstream), log)
    assert fork.spent_usd == pytest.approx(usd(1000, 20))
    assert [(probe.prompt_tokens, probe.completion_tokens) for probe in log.closed] == [(1000, 20)]


async def test_the_prompt_tokens_that_messages_tell_at_the_start_are_paid(engine: Any, upstream: Any, log: Any) -> None:
    """The call is complete before the end's usage has come; what the prompt cost was told long before."""
    raw = [with_usage(piece, 50_000, 20) for piece in written("messages", ORDER)]
    engine.script = telling(*raw[:-2], hang=True)
    fork = ForcedCall(hosted())
    assert len(await probe_once(fork, turn_of("messages", upstream=upstream), log)) == 1
    assert fork.spent_usd >= usd(50_000, 0)
    assert log.closed[0].prompt_tokens == 50_000


async def test_tokens_from_and_for_the_providers_cache_are_paid(engine: Any, upstream: Any, log: Any) -> None:
    raw = written("messages", Text())
    start = json.loads(raw[0].split(b"data: ", 1)[1])
    start["message"]["usage"] |= {"cache_read_input_tokens": 3000, "cache_creation_input_tokens": 6000}
    raw[0] = f"event: message_start\ndata: {json.dumps(start)}\n\n".encode()
    engine.script = telling(*raw)
    fork = ForcedCall(hosted())
    await probe_once(fork, turn_of("messages", upstream=upstream), log)
    assert fork.spent_usd == pytest.approx(usd(9009, 4))


@pytest.mark.parametrize("api", APIS)
async def test_a_call_without_told_usage_counts_as_the_longest(engine: Any, upstream: Any, log: Any, api: str) -> None:
    raw = [piece for piece in written(api, ORDER) if b"message_start" not in piece]
    engine.script = telling(*raw[:-2])
    fork = ForcedCall(hosted(tokens=100))
    await probe_once(fork, turn_of(api, upstream=upstream), log)
    assert fork.spent_usd >= usd(0, 100)


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_that_breaks_off_is_paid_for(engine: Any, upstream: Any, log: Any, api: str) -> None:
    """The endpoint has read the prompt and begun to write."""

    async def cut(asked: Any) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        first = written(api, Text(), ORDER)[0]
        asked.writer.write(head + b"%x\r\n%s\r\n" % (len(first), first))
        await asked.writer.drain()
        asked.writer.close()

    engine.script = cut
    fork = ForcedCall(hosted())
    assert await probe_once(fork, turn_of(api, upstream=upstream), log) == []
    assert [probe.outcome for probe in log.closed] == ["upstream_broke_off"]
    assert fork.spent_usd > 0


@pytest.mark.parametrize("api", APIS)
async def test_probing_stops_at_the_cap(engine: Any, upstream: Any, log: Any, api: str) -> None:
    engine.script = telling(*(with_usage(raw, 1000, 20) for raw in written(api, Text())))
    fork = ForcedCall(hosted(cap=0.03))
    for _ in range(6):
        turn = turn_of(api, upstream=upstream)
        task = asyncio.create_task(ProbeSpeculator({Engine.VLLM: fork}, log, 10).speculate(turn, lambda _: None))
        turn.take(TextDelta("text"))
        await log.until(len(log.closed) + 1, task)
        turn.end()
        await asyncio.wait_for(task, SOON)
    assert len(engine.probes) == 3  # 0.012 each: 0.036 is the first sum at or above 0.03


@pytest.mark.parametrize("api", APIS)
async def test_the_probe_goes_to_the_turns_own_path_with_its_headers(
    engine: Any, upstream: Any, log: Any, api: str
) -> None:
    engine.script = telling(*written(api, ORDER))
    turn = turn_of(api, upstream=upstream)
    turn.headers = [(b"content-type", b"application/json"), (b"anthropic-version", b"2023-06-01"), (b"x-api-key", b"k")]
    turn.headers += [(b"x-request-id", b"the-turns-own"), (b"idempotency-key", b"the-turns-own")]
    await probe_once(ForcedCall(hosted()), turn, log)
    headers = engine.probes[0].headers
    assert (headers["anthropic-version"], headers["x-api-key"]) == ("2023-06-01", "k")
    assert "the-turns-own" not in headers.values()
