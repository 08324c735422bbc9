"""Calls of endpoints that number their parts oddly: none is lost (it may write), none is told twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.answers import CALL, REASONING, TEXT, Answer, Part, expected, heard
from tests.wire.dialects import frames, messages, responses

ANSWER = Answer(
    (
        Part(REASONING, ("hm",)),
        Part(CALL, ('{"a"', ": 1}"), "read", "call_1"),
        Part(CALL, ('{"b"', ": 2}"), "write", "call_2"),
        Part(TEXT, ("so",)),
    )
)
WANTED = expected(ANSWER).calls


def told(dialect: Any, payloads: list[Any]) -> Any:
    stream = dialect.api.open_stream()
    return heard([*stream.feed(frames(payloads)), *stream.finish()]).calls


def without(payload: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key not in fields}


@pytest.mark.parametrize("habit", ["no index", "always 0", "text"])
def test_messages_blocks_with_odd_indices_are_told_apart_by_their_order(habit: str) -> None:
    def odd(payload: dict[str, Any]) -> dict[str, Any]:
        if "index" not in payload or habit == "no index":
            return without(payload, "index")
        return {**payload, "index": 0 if habit == "always 0" else str(payload["index"])}

    assert told(messages, [odd(payload) for payload in messages.payloads(ANSWER)]) == WANTED


@pytest.mark.parametrize("habit", ["no output_index", "always 0", "no item_id", "from 5 on"])
def test_responses_items_with_odd_indices_are_told_apart_by_their_ids(habit: str) -> None:
    def odd(payload: dict[str, Any]) -> dict[str, Any]:
        if habit == "no item_id":
            return without(payload, "item_id")
        if "output_index" not in payload or habit == "no output_index":
            return without(payload, "output_index")
        return {**payload, "output_index": 0 if habit == "always 0" else payload["output_index"] + 5}

    assert told(responses, [odd(payload) for payload in responses.payloads(ANSWER)]) == WANTED


def test_a_last_event_that_leaves_items_out_repeats_no_call() -> None:
    *payloads, last = responses.payloads(ANSWER)
    calls_only = [item for item in last["response"]["output"] if item["type"] == "function_call"]
    shortened = {**last, "response": {**last["response"], "output": calls_only}}
    assert told(responses, [*payloads, shortened]) == WANTED


@pytest.mark.parametrize("kept", ["added", "done", "last", "deltas"])
def test_calls_that_are_told_in_one_place_only_are_told(kept: str) -> None:
    kinds = {
        "added": ("response.output_item.added", "response.function_call_arguments", "response.completed"),
        "deltas": ("response.output_item.added", "response.function_call_arguments.delta"),
        "done": ("response.output_item.done",),
        "last": ("response.completed",),
    }[kept]
    payloads = [payload for payload in responses.payloads(ANSWER) if payload["type"].startswith(kinds)]
    assert told(responses, payloads) == WANTED


def test_arguments_that_come_with_the_done_event_only_are_not_empty() -> None:
    payloads = [p for p in responses.payloads(ANSWER) if not p["type"].endswith("arguments.delta")]
    assert told(responses, payloads) == WANTED


def test_two_answers_with_one_call_each_do_not_share_a_call() -> None:
    for _ in range(2):
        assert told(messages, messages.payloads(ANSWER)) == WANTED
        assert told(responses, responses.payloads(ANSWER)) == WANTED
