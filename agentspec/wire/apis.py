"""The APIs that an agent may speak, each as one value: what reads its requests and answers, how its errors look."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from agentspec.errors import ApiError
from agentspec.events import TurnEvent
from agentspec.wire import chat, messages, responses
from agentspec.wire.answers import AnswerStream
from agentspec.wire.request import TurnRequest


@dataclass(frozen=True, slots=True)
class WireApi:
    """One API.

    Attributes:
        path: where its turns are asked for.
        read_request: raises RequestError for no JSON, msgspec.ValidationError for JSON of another shape.
        open_stream: a decoder for one streamed answer.
        read_answer: the same events, from an answer that was not streamed.
        error_body: one of our own errors, as its clients expect it.
        call_sign: found in every piece of a streamed answer that begins a call or goes on with one, as endpoints
            usually write them.
    """

    name: str
    path: str
    read_request: Callable[[bytes], TurnRequest]
    open_stream: Callable[[], AnswerStream]
    read_answer: Callable[[bytes], list[TurnEvent]]
    error_body: Callable[[ApiError], dict[str, object]]
    call_sign: re.Pattern[bytes]


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def _anthropic_error(error: ApiError) -> dict[str, object]:
    kind = _ANTHROPIC_TYPES.get(error.status, error.type)
    return {"type": "error", "error": {"type": kind, "message": error.message, "code": error.code}}


CHAT = WireApi(
    "chat",
    "/v1/chat/completions",
    chat.read_request,
    chat.ChatStream,
    chat.read_answer,
    ApiError.body,
    re.compile(rb'"tool_calls": ?\[\{|"function_call": ?\{'),
)
RESPONSES = WireApi(
    "responses",
    "/v1/responses",
    responses.read_request,
    responses.ResponsesStream,
    responses.read_answer,
    ApiError.body,
    re.compile(rb"_call"),
)
MESSAGES = WireApi(
    "messages",
    "/v1/messages",
    messages.read_request,
    messages.MessagesStream,
    messages.read_answer,
    _anthropic_error,
    re.compile(rb"tool_use|input_json_delta"),
)

API_OF_PATH = {api.path: api for api in (CHAT, RESPONSES, MESSAGES)}


def api_near(path: str) -> WireApi:
    """The API whose error shape a path's clients expect."""
    return MESSAGES if path == MESSAGES.path or path.startswith(f"{MESSAGES.path}/") else CHAT
