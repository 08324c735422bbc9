"""Turns in the books: which conversation they belong to, what is noted, and what is not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from agentspec.memory.ledger_reader import LedgerReader

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"
Said = list[dict[str, Any]]


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "x", "choices": [choice]}).encode() + b"\n\n"


def calling(*calls: tuple[str, str]) -> dict[str, Any]:
    """An assistant's message with calls of f."""
    made = [{"id": i, "type": "function", "function": {"name": "f", "arguments": a}} for i, a in calls]
    return {"role": "assistant", "content": None, "tool_calls": made}


@pytest.fixture
def reader(proxy: Any) -> Callable[[], LedgerReader]:
    """The books after the proxy has stopped."""

    def read() -> LedgerReader:
        proxy.stop()
        return LedgerReader(proxy.settings.database)

    return read


@pytest.fixture
def say(endpoint: Any, client: httpx.AsyncClient) -> Callable[..., Any]:
    """One turn: the endpoint answers with these deltas."""

    async def turn(messages: Said, *deltas: dict[str, Any], **headers: str) -> httpx.Response:
        async def answer(exchange: Any) -> None:
            await exchange.stream()
            for delta in deltas:
                await exchange.chunk(event(delta))
            await exchange.chunk(event({}, "stop"))
            await exchange.end()

        endpoint.answer = answer
        body = json.dumps({"model": "m", "messages": messages, "stream": True}).encode()
        return await client.post(CHAT, content=body, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return turn


USER = {"role": "user", "content": "hello"}
TEXT = {"role": "assistant", "content": "hi"}


def wire(*calls: tuple[str, str]) -> dict[str, Any]:
    parts = [{"index": n, "id": i, "function": {"name": "f", "arguments": a}} for n, (i, a) in enumerate(calls)]
    return {"tool_calls": parts}


async def test_a_conversation_stays_one_though_the_framework_rewrites_it(say: Any, reader: Any) -> None:
    await say([USER], wire(("c1", '{"a":1,"b":[2]}')))
    first = [USER, calling(("c1", '{"b": [2], "a": 1}')), {"role": "tool", "tool_call_id": "c1", "content": "r"}]
    await say(first, {"content": "hi"})
    second = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}, *first[1:], TEXT, USER]
    await say(second, {"content": "hi"})
    assert [row["turns"] for row in reader().trajectories()] == [3]


async def test_same_first_words_are_separate_conversations(say: Any, reader: Any) -> None:
    for _ in range(3):
        await say([USER], {"content": "hi"})
    assert [row["turns"] for row in reader().trajectories()] == [1, 1, 1]


async def test_two_continuations_of_one_answer_are_two_branches(say: Any, reader: Any) -> None:
    await say([USER], {"content": "hi"})
    for text in ("one", "two"):
        await say([USER, TEXT, {"role": "user", "content": text}], {"content": "hi"})
    assert sorted(row["turns"] for row in reader().trajectories()) == [1, 2]


async def test_an_answer_that_we_did_not_relay_is_no_continuation(say: Any, reader: Any) -> None:
    await say([USER], wire(("c1", '{"a":1}')))
    for id, arguments in (("c1", '{"a":2}'), ("other", '{"a":1}')):
        answered = {"role": "tool", "tool_call_id": id, "content": "r"}
        await say([USER, calling((id, arguments)), answered], {"content": "hi"})
    assert [row["turns"] for row in reader().trajectories()] == [1, 1, 1]


async def test_a_session_header_names_the_conversation_and_keys_keep_tenants_apart(say: Any, reader: Any) -> None:
    for key in ("Bearer a", "Bearer b"):
        for _ in range(2):
            await say([USER], {"content": "hi"}, x_agentspec_session="mine", authorization=key)
    found = reader().trajectories()
    assert [row["turns"] for row in found] == [2, 2]
    assert all(row["trajectory"].endswith(":mine") for row in found)


@pytest.mark.parametrize("failure", ["cut", "status"])
async def test_a_retry_after_a_failure_does_not_split_the_conversation(
    endpoint: Any, proxy: Any, say: Any, reader: Any, failure: str
) -> None:
    async def answer(exchange: Any) -> None:
        if len(endpoint.seen) == 1:
            exchange.wire.cut() if failure == "cut" else await exchange.whole(b"{}", 503)
            return
        await exchange.stream()
        await exchange.chunk(event({"content": "hi"}))
        await exchange.chunk(event({}, "stop"))
        await exchange.end()

    endpoint.answer = answer
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k", max_retries=1) as client:
        async for _ in await client.chat.completions.create(model="m", messages=[USER], stream=True):  # type: ignore[list-item]
            pass
        later = [USER, TEXT, USER]
        async for _ in await client.chat.completions.create(model="m", messages=later, stream=True):  # type: ignore[arg-type]
            pass
    assert [row["turns"] for row in reader().trajectories()] == [3]


async def test_what_happened_to_a_turn_is_noted(
    endpoint: Any, proxy: Any, client: httpx.AsyncClient, chat: Callable[..., bytes], reader: Any
) -> None:
    async def answer(exchange: Any) -> None:
        number = len(endpoint.seen)
        if number == 1:
            usage = b'{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}'
            await exchange.whole(usage)
        elif number == 2:
            await exchange.whole(b"{}", 429)
        elif number in (3, 4):  # a kept connection that is cut is tried once more
            exchange.wire.cut()
        else:
            await exchange.stream()
            await exchange.chunk(event({"content": "half"}))
            await exchange.gone.wait()

    endpoint.answer = answer
    for number in range(3):
        await client.post(CHAT, content=chat(str(number)))
    gone = await proxy.ask(CHAT, chat("3"))
    await gone.until(b"half")
    gone.cut()
    await asyncio.wait_for(endpoint.seen[4].gone.wait(), 2)
    books = reader()
    turns = [books.turns(row["trajectory"])[0] for row in reversed(books.trajectories())]
    assert [turn["status"] for turn in turns] == [200, 429, 0, 200]
    assert (turns[0]["prompt_tokens"], turns[0]["completion_tokens"]) == (9, 4)
    assert "upstream_unreachable" in turns[2]["note"]
    assert turns[3]["note"] == "the client left"
    assert turns[0]["note"] == ""
    assert all(turn["duration_s"] >= 0 for turn in turns)


async def test_the_books_hold_neither_keys_nor_words_nor_arguments(say: Any, reader: Any) -> None:
    secret = {"role": "user", "content": "hush-words"}
    await say(
        [secret], {"content": "hush-answer"}, wire(("c", '{"a":"hush-arguments"}')), authorization="Bearer hush-key"
    )
    database = reader()
    assert database.trajectories()
    for file in Path(str(database._engine.url.database)).parent.iterdir():
        assert b"hush" not in file.read_bytes()


async def test_a_runtimes_secret_is_not_in_the_books(endpoint: Any, client: Any, chat: Any, reader: Any) -> None:
    await client.post(f"/r/{'hush' * 8}/v1/chat/completions", content=chat())
    books = reader()
    assert books.trajectories()
    for file in Path(str(books._engine.url.database)).parent.iterdir():
        assert b"hushhush" not in file.read_bytes()


async def test_with_speculation_off_turns_are_relayed_and_noted(
    endpoint: Any, start_proxy: Any, chat: Callable[..., bytes]
) -> None:
    proxy = start_proxy(endpoint.url, speculation=False)
    async with httpx.AsyncClient(base_url=proxy.url, trust_env=False) as client:
        assert (await client.post(CHAT, content=chat())).json() == {"hello": 1}
    proxy.stop()
    assert len(LedgerReader(proxy.settings.database).trajectories()) == 1


async def test_a_ledger_that_breaks_while_serving_is_never_seen(
    endpoint: Any, proxy: Any, client: httpx.AsyncClient, chat: Callable[..., bytes]
) -> None:
    import sqlalchemy as sa

    engine = sa.create_engine(proxy.settings.database)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE turns"))
    engine.dispose()
    for number in range(5):
        assert (await client.post(CHAT, content=chat(str(number)))).json() == {"hello": 1}


@pytest.mark.parametrize("reader", ["_tools", "_messages"])
async def test_a_fault_in_reading_a_request_does_not_keep_it_from_the_endpoint(
    endpoint: Any, client: httpx.AsyncClient, chat: Any, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    def fails(raw: object) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(f"agentspec.wire.chat.{reader}", fails)
    body = chat("hello")
    response = await client.post("/v1/chat/completions", content=body)
    assert (response.status_code, response.json()) == (200, {"hello": 1})
    assert endpoint.seen[0].body == body
