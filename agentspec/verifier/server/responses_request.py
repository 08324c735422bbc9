"""From a `/v1/responses` body to a turn: the chat that it means, as probes of it are written too (`wire.as_chat`)."""

from __future__ import annotations

from typing import Any

from agentspec.errors import RequestError
from agentspec.verifier.server import fields
from agentspec.verifier.server.fields import Body
from agentspec.verifier.server.request import ChatJob, chat_job
from agentspec.wire.as_chat import as_chat

_KEPT_ELSEWHERE = {
    "previous_response_id": "nothing is kept here between requests: send the whole conversation as `input`",
    "conversation": "nothing is kept here between requests: send the whole conversation as `input`",
    "store": "nothing is kept here: leave `store` out, or set it to false",
    "background": "there are no background responses here: leave `background` out, and stream",
    "prompt": "there are no stored prompts here: send `instructions` and `input`",
}
_SAME_IN_CHAT = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "logit_bias"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "prediction", "priority", "stream"),
    *("agentspec", "request_id"),
)
_ITEMS = "`input` may hold messages of text, function calls, their outputs, and reasoning"
_LOGPROBS = "message.output_text.logprobs"


def response_job(body: Body) -> ChatJob:
    """Read it.

    Raises:
        RequestError: a field is missing, wrong, or asks for what is not kept here; unknown fields are ignored.
    """
    for name, what_to_do in _KEPT_ELSEWHERE.items():
        if body.get(name):
            raise RequestError(f"`{name}` is not supported: {what_to_do}", code="unsupported")
    given = body.get("input")
    if not isinstance(given, str | list) or not given:
        raise RequestError("`input` must be a non-empty text or list of items")
    if isinstance(given, list) and not all(isinstance(item, dict) for item in given):
        raise RequestError("each item of `input` must be an object")
    chat = as_chat("responses", {**body, "tools": _tools(body)})
    if chat is None:
        raise RequestError(f"`input` or `instructions` hold what is no text: {_ITEMS}", code="unsupported")
    return chat_job({**{name: body[name] for name in _SAME_IN_CHAT if name in body}, **chat, **_translated(body)})


def _tools(body: Body) -> list[dict[str, Any]]:
    tools = body.get("tools") or []
    if not isinstance(tools, list):
        raise RequestError("`tools` must be a list")
    for tool in tools:
        if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("name"), str):
            raise RequestError("`tools` may only be functions with a `name`: no tool runs on this server")
    return [{"parameters": {}, **tool} for tool in tools]


def _translated(body: Body) -> dict[str, Any]:
    """The fields that a chat request calls otherwise."""
    included = body.get("include")
    logprobs = isinstance(included, list) and _LOGPROBS in included
    return {
        "max_completion_tokens": body.get("max_output_tokens"),
        "tool_choice": body.get("tool_choice"),
        "parallel_tool_calls": body.get("parallel_tool_calls"),
        "logprobs": logprobs,
        "top_logprobs": body.get("top_logprobs") if logprobs else None,
        "response_format": _response_format(body),
    }


def _response_format(body: Body) -> dict[str, Any] | None:
    form = fields.mapping(fields.mapping(body, "text"), "format")
    if not form:
        return None
    return {"type": form.get("type"), "json_schema": form}
