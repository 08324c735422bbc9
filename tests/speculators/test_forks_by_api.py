"""What a probe asks, for every API on every kind of endpoint: never more than the question itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentspec.config import Engine, load
from agentspec.events import ReasoningDelta, TextDelta
from agentspec.speculators.forks import OPENING, Continuation, ForcedCall, forks_for
from tests.speculators.turns import APIS, QUESTION, TOOLS, turn_of

PRICED = {"price_input_usd_per_mtok": 10.0, "price_output_usd_per_mtok": 100.0, "probe_money_cap_usd": 1.0}
OWN, HOSTED = [Engine.VLLM, Engine.SGLANG, Engine.AGENTSPEC], [Engine.OPENAI, Engine.ANTHROPIC]
TRACES = {
    "chat": {"store": True, "metadata": {"a": "b"}, "user": "u", "n": 3, "stream_options": {"include_usage": True}},
    "responses": {"store": True, "metadata": {"a": "b"}, "user": "u"},
    "messages": {"metadata": {"user_id": "u"}},
}
NEVER = ("conversation", "background", "thread", "metadata", "user", "n", "request_id", "rid")
THINKING = {
    "chat": {"reasoning_effort": "high", "max_completion_tokens": 900},
    "responses": {"reasoning": {"effort": "high"}, "max_output_tokens": 900},
    "messages": {"max_tokens": 900},
}


def fork_for(engine: Engine) -> Continuation | ForcedCall:
    return forks_for(load({"engine": engine, **PRICED}))[engine]


def probe(turn: Any) -> tuple[str, dict[str, Any]] | None:
    asked = fork_for(turn.engine).request(turn)
    return (asked[0], json.loads(asked[1])) if asked is not None else None


def probed(turn: Any) -> dict[str, Any]:
    asked = probe(turn)
    assert asked is not None
    return asked[1]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("engine", Engine)
def test_a_probe_leaves_nothing_at_the_endpoint(engine: Engine, api: str) -> None:
    body = probed(turn_of(api, engine=engine, request_id="r", rid="r", **TRACES[api]))
    assert [name for name in NEVER if name in body] == []
    assert body.get("store") is not True
    assert (body["stream"], body["temperature"], body["model"]) == (True, 0, "m")


def test_the_responses_api_is_told_to_keep_nothing(api: str = "responses") -> None:
    """There an answer is kept unless it says otherwise."""
    for engine in HOSTED:
        assert probed(turn_of(api, engine=engine))["store"] is False
        assert probed(turn_of(api, engine=engine, previous_response_id="resp_0"))["store"] is False


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("engine", HOSTED)
def test_a_hosted_endpoint_gets_the_turns_own_question_with_a_call_forced(engine: Engine, api: str) -> None:
    turn = turn_of(api, engine=engine, tool_choice={"type": "auto"} if api == "messages" else "auto", **THINKING[api])
    path, body = probe(turn) or ("", {})
    sent = json.loads(turn.body)
    assert path == APIS[api].path.removeprefix("/v1")
    assert [body[name] for name in ("messages", "input", "tools") if name in sent] == [
        sent[name] for name in ("messages", "input", "tools") if name in sent
    ]
    assert body["tool_choice"] == ({"type": "any"} if api == "messages" else "required")
    limit = "max_output_tokens" if api == "responses" else "max_tokens"
    assert body[limit] == 64
    limits = {"max_tokens", "max_output_tokens", "max_completion_tokens"}
    assert limits & set(body) == {limit}
    assert not {"reasoning", "reasoning_effort", "thinking", "logprobs", "add_generation_prompt"} & set(body)
    assert ("stream_options" in body) == (api == "chat")


FORCED = {
    "chat": {"type": "function", "function": {"name": "get_order"}},
    "responses": {"type": "function", "name": "get_order"},
    "messages": {"type": "tool", "name": "get_order"},
}


@pytest.mark.parametrize("api", APIS)
def test_a_tool_that_the_agent_forces_stays_forced(api: str) -> None:
    assert probed(turn_of(api, engine=Engine.OPENAI, tool_choice=FORCED[api]))["tool_choice"] == FORCED[api]


@pytest.mark.parametrize("choice", [None, {"type": "auto", "disable_parallel_tool_use": True}, {"type": "any"}])
def test_messages_force_any_tool_where_the_agent_names_none(choice: Any) -> None:
    more = {"tool_choice": choice} if choice else {}
    assert probed(turn_of("messages", engine=Engine.ANTHROPIC, **more))["tool_choice"]["type"] == "any"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("engine", OWN)
def test_an_engine_of_ones_own_continues_the_chat_that_the_turn_means(engine: Engine, api: str) -> None:
    turn = turn_of(api, engine=engine, **THINKING[api])
    turn.take(ReasoningDelta("Let me see. "))
    turn.take(TextDelta("I look. "))
    path, body = probe(turn) or ("", {})
    assert path == "/chat/completions"
    assert body["messages"] == [
        QUESTION,
        {"role": "assistant", "content": f"<think>\nLet me see.\n</think>\n\nI look.\n{OPENING}"},
    ]
    assert body["tools"] == [TOOLS["chat"]]
    assert (body["continue_final_message"], body["add_generation_prompt"], body["logprobs"]) == (True, False, True)
    assert body["max_tokens"] == 64
    assert not {"max_completion_tokens", "max_output_tokens", "input", "system", "instructions"} & set(body)
    assert body.get("tool_choice") == (None if engine is Engine.AGENTSPEC else "none")
    assert (body["priority"] > 0) == (engine is not Engine.SGLANG)


@pytest.mark.parametrize("engine", Engine)
@pytest.mark.parametrize("conversation", ["conv_1", {"id": "conv_1"}])
def test_a_conversation_that_the_endpoint_keeps_is_not_touched(engine: Engine, conversation: Any) -> None:
    assert probe(turn_of("responses", engine=engine, conversation=conversation)) is None


@pytest.mark.parametrize("engine", HOSTED)
def test_a_background_answer_is_not_probed(engine: Engine) -> None:
    assert probe(turn_of("responses", engine=engine, background=True)) is None


@pytest.mark.parametrize("engine", Engine)
def test_a_thread_that_the_endpoint_keeps_is_not_touched(engine: Engine) -> None:
    going_on = {"type": "continue", "previous_message_id": "msg_0"}
    assert probe(turn_of("messages", engine=engine, thread=going_on)) is None
    begun = probe(turn_of("messages", engine=engine, thread={"type": "create"}))
    assert begun is None or "thread" not in begun[1]


@pytest.mark.parametrize("engine", OWN)
def test_a_previous_answer_cannot_be_continued_as_a_chat(engine: Engine) -> None:
    assert probe(turn_of("responses", engine=engine, previous_response_id="resp_0")) is None


@pytest.mark.parametrize("engine", HOSTED)
def test_a_previous_answer_is_named_to_a_hosted_endpoint(engine: Engine) -> None:
    turn = turn_of("responses", engine=engine, previous_response_id="resp_0")
    assert probed(turn)["previous_response_id"] == "resp_0"


@pytest.mark.parametrize(
    "thinking",
    [{"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}],
)
@pytest.mark.parametrize("engine", HOSTED)
def test_anthropic_thinking_cannot_be_forced(engine: Engine, thinking: dict[str, Any]) -> None:
    assert probe(turn_of("messages", engine=engine, thinking=thinking)) is None


def test_thinking_that_is_switched_off_can_be_forced() -> None:
    body = probed(turn_of("messages", engine=Engine.ANTHROPIC, thinking={"type": "disabled"}))
    assert body["tool_choice"] == {"type": "any"}


PROVIDERS: list[tuple[str, dict[str, Any]]] = [
    ("responses", {"tools": [TOOLS["responses"], {"type": "mcp", "server_label": "s", "server_url": "https://s"}]}),
    ("responses", {"tools": [TOOLS["responses"], {"type": "code_interpreter", "container": {"type": "auto"}}]}),
    ("responses", {"tools": [{"type": "web_search"}, TOOLS["responses"]]}),
    ("responses", {"tools": [{"type": "image_generation"}, TOOLS["responses"]]}),
    ("messages", {"tools": [TOOLS["messages"], {"type": "code_execution_20250825", "name": "code_execution"}]}),
    ("messages", {"tools": [TOOLS["messages"], {"type": "web_search_20250305", "name": "web_search"}]}),
    ("messages", {"mcp_servers": [{"type": "url", "url": "https://s", "name": "s"}]}),
    ("messages", {"container": "container_1"}),
]


@pytest.mark.parametrize(("api", "more"), PROVIDERS)
@pytest.mark.parametrize("engine", Engine)
def test_a_probe_never_makes_the_provider_run_a_tool(engine: Engine, api: str, more: dict[str, Any]) -> None:
    """Forced to call something, the model may choose one that the provider carries out at once, with its effects."""
    asked = probe(turn_of(api, engine=engine, **more))
    if asked is None:
        return
    names = [tool.get("name") or tool.get("function", {}).get("name") for tool in asked[1]["tools"]]
    assert names == ["get_order"]
    assert not {"mcp_servers", "container"} & set(asked[1])


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("engine", Engine)
def test_a_probe_does_not_change_the_turn(engine: Engine, api: str) -> None:
    turn = turn_of(api, engine=engine, **TRACES[api])
    before, tools = turn.body, dict(turn.request.tools)
    assert probed(turn) == probed(turn)
    assert (turn.body, dict(turn.request.tools)) == (before, tools)


def test_only_endpoints_that_may_be_probed_have_a_fork() -> None:
    free = forks_for(load({"engine": "vllm"}))
    assert set(free) == set(OWN)
    assert set(forks_for(load({"engine": "openai", **PRICED}))) == set(Engine)
    assert forks_for(load({"engine": "vllm", "probe": False})) == {}
    paid = forks_for(load({"engine": "openai", **PRICED}))
    assert paid[Engine.OPENAI] is paid[Engine.ANTHROPIC], "one money cap for both"
