"""Drafts from outside inside vLLM: the door, the socket between its processes, and what is proposed for which row."""

from __future__ import annotations

import asyncio
import json
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.verifier.adapters.in_vllm import agentspec_drafts as module
from agentspec.verifier.adapters.in_vllm.agentspec_drafts import DraftsDoor, PostedDrafts, continuation, digest

TOKENS = st.lists(st.integers(0, 4), max_size=20)
DRAFT = [11, 12, 13, 14, 15, 16]
PROMPT = [1, 2, 3]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@given(TOKENS, TOKENS, st.integers(1, 8))
def test_a_continuation_is_what_follows_in_the_draft(written: list[int], draft: list[int], most: int) -> None:
    run, found = continuation(written, draft, most)
    assert len(found) <= most
    assert bool(run) == bool(found)
    if run:
        follows = [stop for stop in range(run, len(draft)) if draft[stop - run : stop] == written[-run:]]
        assert any(draft[stop : stop + most] == found for stop in follows)


@given(TOKENS, st.lists(st.integers(), min_size=2, max_size=20, unique=True), st.data())
def test_a_turn_that_writes_the_draft_is_shown_the_rest_of_it_at_every_token(
    before: list[int], draft: list[int], data: st.DataObject
) -> None:
    stop = data.draw(st.integers(1, len(draft) - 1))
    before = [token + 10**6 for token in before]
    assert continuation([*before, *draft[:stop]], draft, 99) == (stop, draft[stop:])


def test_one_token_in_the_middle_is_no_reason_to_draft() -> None:
    assert continuation([13], DRAFT, 9) == (0, [])
    assert continuation([12, 13], DRAFT, 9) == (2, [14, 15, 16])
    assert continuation([11], DRAFT, 9) == (1, [12, 13, 14, 15, 16])


def test_after_a_difference_it_goes_on_behind_it() -> None:
    """The name was guessed right, one argument was not."""
    assert continuation([11, 12, 99], DRAFT, 9) == (0, [])
    assert continuation([11, 12, 99, 14, 15], DRAFT, 9) == (2, [16])


def config(**more: Any) -> Any:
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=4),
        model_config=SimpleNamespace(max_model_len=32),
        parallel_config=SimpleNamespace(**({"world_size": 1} | more)),
    )


@pytest.fixture
def socket_path(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path_factory.mktemp("s") / "drafts.sock"
    monkeypatch.setenv(module.SOCKET, str(path))
    return path


@pytest.fixture
def proposer(socket_path: Path) -> Iterator[PostedDrafts]:
    made = PostedDrafts(config())
    yield made
    made._inbox.close()


def told(name: str = "r", prompt: list[int] = PROMPT, *drafts: list[int]) -> dict[str, Any]:
    ids = array("i", prompt).tobytes()
    return {"id": name, "prompt_tokens": len(prompt), "prompt_digest": digest(ids), "drafts": list(drafts or [DRAFT])}


def proposed(proposer: PostedDrafts, *rows: list[int], sampled: bool = True) -> list[list[int]]:
    tokens = np.zeros((len(rows), 32), dtype=np.int32)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = row
    counts = np.array([len(row) for row in rows], dtype=np.int32)
    return proposer.propose([[row[-1]] if sampled else [] for row in rows], counts, tokens, slot_mappings=None)


def test_a_draft_is_for_the_row_with_its_prompt_and_no_other(proposer: PostedDrafts) -> None:
    proposer.take(told())
    assert proposed(proposer, [*PROMPT, 11, 12], [1, 2, 4, 11, 12]) == [[13, 14, 15, 16], []]
    assert proposed(proposer, [*PROMPT], [*PROMPT, 99]) == [[], []]
    assert proposed(proposer, [*PROMPT, 11, 12], sampled=False) == [[]], "a row that is not done with its prompt"


def test_nothing_is_proposed_past_the_longest_context(proposer: PostedDrafts) -> None:
    proposer.take(told())
    for filled in range(24, 32):
        (found,) = proposed(proposer, [*PROMPT, *[99] * (filled - 5), 11, 12])
        assert len(found) == max(0, min(4, 32 - filled - 1))


def test_drafts_go_with_their_request(proposer: PostedDrafts) -> None:
    proposer.take(told())
    proposer.take(told("other", [7, 8]))
    proposer.take({"id": "r", "over": True})
    assert proposed(proposer, [*PROMPT, 11, 12], [7, 8, 11, 12]) == [[], [13, 14, 15, 16]]


def test_drafts_of_a_request_whose_end_was_not_heard_of_do_not_stay(
    proposer: PostedDrafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposer.take(told())
    later = time.monotonic() + module.KEPT_S + 1
    monkeypatch.setattr(module.time, "monotonic", lambda: later)
    proposer.take(told("other", [7, 8]))
    assert set(proposer._posted) == {"other"}


def test_the_draft_that_fits_best_is_used(proposer: PostedDrafts) -> None:
    proposer.take(told("r", PROMPT, [5, 12, 20, 21]))
    proposer.take(told("r", PROMPT, DRAFT))
    assert proposed(proposer, [*PROMPT, 11, 12]) == [[13, 14, 15, 16]]
    assert proposed(proposer, [*PROMPT, 5, 12]) == [[20, 21]]


def test_several_workers_would_draft_differently(socket_path: Path) -> None:
    with pytest.raises(ValueError, match="one worker"):
        PostedDrafts(config(world_size=2))


def test_a_letter_that_is_none_is_thrown_away(proposer: PostedDrafts, socket_path: Path) -> None:
    door = DraftsDoor(None)
    for letter in (b"{", b"[]", b'{"id": 1}'):
        door._out.sendto(letter, str(socket_path))
    assert door._tell(told())
    wait_for(lambda: proposer._posted)
    assert proposed(proposer, [*PROMPT, 11, 12]) == [[13, 14, 15, 16]]


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Api:
    """vLLM's API server, as far as the door sees it: a tokenizer of letters, and chats that last until they may end."""

    def __init__(self) -> None:
        self.began, self.end = asyncio.Event(), asyncio.Event()
        self.got: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raw = (await receive())["body"]
        self.got.append(raw)
        body = json.loads(raw)
        if scope["path"] == "/tokenize":
            gone = asyncio.ensure_future(receive())
            await asyncio.sleep(0)
            assert not gone.done(), "vLLM would take it for a client that left"
            gone.cancel()
            text = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
            answer: Any = {"tokens": [ord(letter) for letter in text]}
        else:
            self.began.set()
            await self.end.wait()
            answer = {"id": "chatcmpl-1"}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def client(api: Api, socket_path: Path) -> Any:
    transport = httpx.ASGITransport(app=DraftsDoor(api))
    async with httpx.AsyncClient(transport=transport, base_url="http://vllm", timeout=10) as made:
        yield made


CHAT = {"model": "m", "messages": [{"role": "user", "content": "abc"}], "temperature": 0}
OFFER = {"request_id": "r1", "drafts": ["xyz"]}


@pytest.fixture
async def running(api: Api, client: httpx.AsyncClient) -> Any:
    """running(**more): a chat under the id r1 that goes on; its task."""
    tasks = []

    async def start(key: str = "k", **more: Any) -> Any:
        headers = {"x-request-id": "r1", "authorization": key}
        chat = client.post("/v1/chat/completions", json=CHAT | more, headers=headers)
        tasks.append(asyncio.create_task(chat))
        await asyncio.wait_for(api.began.wait(), 5)
        return tasks[-1]

    yield start
    api.end.set()
    await asyncio.gather(*tasks)


@pytest.mark.anyio
async def test_a_posted_draft_reaches_the_row_of_its_request(
    api: Api, client: httpx.AsyncClient, proposer: PostedDrafts, running: Any
) -> None:
    chat = await running()
    answer = await client.post("/v1/drafts", json=OFFER, headers={"authorization": "k"})
    assert (answer.status_code, answer.json()) == (200, {"request_id": "r1", "tokens": 3})
    await asyncio.to_thread(wait_for, lambda: proposer._posted)
    assert proposed(proposer, [*map(ord, "abc"), ord("x")]) == [[ord("y"), ord("z")]]
    api.end.set()
    assert (await chat).json() == {"id": "chatcmpl-1"}
    await asyncio.to_thread(wait_for, lambda: not proposer._posted)
    assert json.loads(api.got[0]) == CHAT, "the chat itself goes on as it came"


@pytest.mark.anyio
async def test_drafts_are_taken_from_the_requests_own_client_only(
    client: httpx.AsyncClient, proposer: PostedDrafts, running: Any
) -> None:
    await running()
    mine, another = {"authorization": "k"}, {"authorization": "another"}
    asked = [
        (OFFER, another),
        (OFFER, {}),
        (OFFER | {"request_id": "r2"}, mine),
        ({"request_id": "r1"}, mine),
        ([], mine),
    ]
    statuses = [(await client.post("/v1/drafts", json=body, headers=key)).status_code for body, key in asked]
    assert statuses == [404, 404, 404, 400, 400]
    assert proposer._posted == {}


@pytest.mark.anyio
async def test_a_request_with_a_salt_shares_nothing_with_an_equal_prompt(
    client: httpx.AsyncClient, proposer: PostedDrafts, running: Any
) -> None:
    await running(cache_salt="s")
    assert (await client.post("/v1/drafts", json=OFFER, headers={"authorization": "k"})).status_code == 409


@pytest.mark.anyio
async def test_without_an_engine_behind_it_a_draft_is_refused(client: httpx.AsyncClient, running: Any) -> None:
    await running()
    assert (await client.post("/v1/drafts", json=OFFER, headers={"authorization": "k"})).status_code == 409
    assert (await client.get("/v1/drafts")).json() == {"takes": "posted"}
