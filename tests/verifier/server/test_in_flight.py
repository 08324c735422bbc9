"""Requests that are running can be named: drafts reach them, cancels end them; and what is left is counted."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from agentspec.gating.load import queue_depth
from agentspec.verifier.server.service import Service
from tests.verifier.conftest import until
from tests.verifier.server.asks import FLAT_TOOLS, MESSAGES, TOOLS, WEATHER

CHAT = "/v1/chat/completions"


def endless(service: Service) -> dict[str, Any]:
    """A request that runs until it is stopped: the same letter to the end of the context."""
    (letter,) = service.text.encode("a")
    return {"messages": MESSAGES, "temperature": 0, "logit_bias": {str(letter): 100}}


def begun(response: httpx.Response) -> Iterator[Any]:
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line[6:])


@pytest.mark.parametrize("by", ["field", "hint", "header", "id"])
def test_a_request_is_cancelled_by_any_of_its_names(http: httpx.Client, service: Service, by: str) -> None:
    body = {**endless(service), "stream": True, **{"field": {"request_id": "r-1"}}.get(by, {})}
    if by == "hint":
        body["agentspec"] = {"request_id": "r-1"}
    with http.stream("POST", CHAT, json=body, headers={"x-request-id": "r-1"} if by == "header" else {}) as response:
        chunks = begun(response)
        first = next(chunks)
        name = first["id"] if by == "id" else "r-1"
        assert http.post("/v1/cancel", json={"request_id": name}).json() == {"cancelled": 1}
        assert list(chunks)[-1]["error"]["code"] == "cancelled"
    assert http.post("/v1/cancel", json={"request_id": name}).status_code == 404


def test_a_cancelled_whole_answer_says_so(http: httpx.Client, service: Service) -> None:
    answers: list[httpx.Response] = []
    body = {**endless(service), "request_id": "r-2", "n": 2}
    asking = threading.Thread(target=lambda: answers.append(http.post(CHAT, json=body)))
    asking.start()
    until(lambda: http.post("/v1/cancel", json={"request_id": "r-2"}).status_code == 200)
    asking.join()
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (409, "cancelled")


def test_a_cancelled_response_fails_in_its_own_words(http: httpx.Client, service: Service) -> None:
    body = {**endless(service), "input": "x", "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as response:
        events = begun(response)
        http.post("/v1/cancel", json={"request_id": next(events)["response"]["id"]})
        last = list(events)[-1]
    assert last["type"] == "response.failed" and last["response"]["status"] == "failed"
    assert last["response"]["error"]["message"]


def test_drafts_reach_the_running_request(http: httpx.Client, service: Service) -> None:
    body = {**endless(service), "stream": True, "max_tokens": 600, "stream_options": {"include_usage": True}}
    body["messages"] = [{"role": "user", "content": "Of this nobody has heard."}]
    before = service.engine.stats().drafts.get("external")
    with http.stream("POST", CHAT, json=body) as response:
        chunks = begun(response)
        name = next(chunks)["id"]
        offered = http.post("/v1/drafts", json={"request_id": name, "drafts": ["a" * 600]})
        assert offered.json() == {"requests": 1}
        rest = list(chunks)
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in rest if c["choices"])
    assert text == "a" * 600
    after = service.engine.stats().drafts["external"]
    assert after.accepted > (before.accepted if before is not None else 0)
    assert rest[-1]["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 0


def test_drafts_and_cancels_for_nobody_are_refused(http: httpx.Client) -> None:
    for path in ("/v1/drafts", "/v1/cancel"):
        unknown = http.post(path, json={"request_id": "nobody", "drafts": ["x"]})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_request")
        assert http.post(path, json={}).status_code == 400
    assert http.post("/v1/drafts", json={"request_id": "x", "drafts": 3}).status_code == 400


@pytest.mark.parametrize(("path", "field"), [(CHAT, {"messages": MESSAGES, "n": 3}), ("/v1/responses", {"input": "x"})])
def test_a_client_that_leaves_ends_all_of_its_choices(
    http: httpx.Client, service: Service, path: str, field: dict[str, Any]
) -> None:
    body = {**endless(service), **field, "stream": True}
    with http.stream("POST", path, json=body) as response:
        next(begun(response))
        before = service.engine.stats().steps
    until(lambda: not service.engine.running and not service.in_flight)
    assert service.engine.stats().steps < before + 400


def next_request(turn: Any, tools: Any) -> dict[str, Any]:
    message = turn["choices"][0]["message"]
    (call,) = message["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "It rains in the north, and nowhere else."}
    return {"messages": [*MESSAGES, message, result], "tools": tools, "temperature": 0, "max_tokens": 1}


def test_while_a_tool_runs_the_next_prompt_is_computed(http: httpx.Client, service: Service) -> None:
    """Of the next request only what follows the result's opening is new."""
    cached = {}
    for idle in (False, True):
        asked = [{"role": "user", "content": f"What is the weather? {idle}"}]
        hints = {"session": f"s-{idle}", "idle": idle}
        body = {"messages": asked, "tools": TOOLS, "tool_choice": WEATHER, "temperature": 0, "max_tokens": 200}
        before = service.idler.submitted
        turn = http.post(CHAT, json={**body, "agentspec": hints}).json()
        assert turn["choices"][0]["finish_reason"] == "tool_calls"
        if idle:
            until(lambda: service.idler.submitted > before)  # noqa: B023 - called at once
            until(lambda: not service.engine.running)
        following = next_request(turn, TOOLS)
        following["messages"][:1] = asked
        usage = http.post(CHAT, json={**following, "agentspec": hints}).json()["usage"]
        cached[idle] = usage["prompt_tokens_details"]["cached_tokens"]
        if idle:
            new = len(
                service.text.encode("It rains in the north, and nowhere else.<|im_end|>\n<|im_start|>assistant\n")
            )
            assert usage["prompt_tokens"] - cached[idle] <= new + 2
    assert cached[False] < cached[True]


def test_the_same_holds_for_responses_and_ends_with_the_session(http: httpx.Client, service: Service) -> None:
    before = service.idler.submitted
    body = {"input": "x", "tools": FLAT_TOOLS, "tool_choice": "required", "temperature": 0, "max_output_tokens": 300}
    named = {**body, "tool_choice": {"type": "function", "name": "ping"}}
    http.post("/v1/responses", json=named, headers={"x-agentspec-session": "s-r"})
    until(lambda: service.idler.submitted == before + 1)
    http.post("/v1/responses", json=named)
    http.post("/v1/responses", json={"input": "x", "max_output_tokens": 1, "agentspec": {"session": "s-r"}})
    assert service.idler.submitted == before + 1


def test_metrics_bear_the_names_that_readers_know(http: httpx.Client) -> None:
    http.post("/v1/completions", json={"prompt": "Plan", "max_tokens": 3, "temperature": 0})
    page = http.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert queue_depth(page.text) == 0
    values = {line.split(" ")[0]: float(line.split(" ")[1]) for line in page.text.splitlines() if line[0] != "#"}
    model = '{model_name="tiny"}'
    assert values[f"vllm:generation_tokens_total{model}"] > 0
    assert values[f"vllm:time_to_first_token_seconds_count{model}"] > 0
    assert values['vllm:request_success_total{finished_reason="length",model_name="tiny"}'] > 0
    assert 0 <= values[f"vllm:kv_cache_usage_perc{model}"] <= 1
