"""From a JSON body to one frozen job: every field is checked here and nowhere else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentspec.errors import RequestError
from agentspec.verifier.verification.grammar import CallRules
from agentspec.verifier.verification.sampling import SamplingParams

Body = Mapping[str, Any]
_MAX_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Options:
    """What chat and plain completions have in common.

    Attributes:
        max_new: generated tokens at most; None: as many as fit.
    """

    params: SamplingParams
    max_new: int | None
    stops: tuple[str, ...]
    priority: int
    stream: bool
    include_usage: bool


@dataclass(frozen=True, slots=True)
class ChatJob:
    """A chat completion.

    Attributes:
        messages: normalized for the template: text content, arguments as objects.
        continuation: the answer's given beginning (`continue_final_message`), or None.
        rules: which calls the answer may hold; None: it is plain text.
    """

    options: Options
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    rules: CallRules | None
    continuation: str | None


@dataclass(frozen=True, slots=True)
class TextJob:
    """A plain completion of a text or of token ids."""

    options: Options
    prompt: str | list[int]


def chat_job(body: Body) -> ChatJob:
    """Read a `/v1/chat/completions` body.

    Raises:
        RequestError: a field is missing or wrong; unknown fields are ignored.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise RequestError("`messages` must be a non-empty list of objects")
    top = _integer(body, "top_logprobs", 0, 0, _MAX_TOP_LOGPROBS) if body.get("logprobs") else None
    continuation = _continuation(body, messages)
    kept = messages if continuation is None else messages[:-1]
    tools = _tools(body)
    return ChatJob(
        options=_options(body, top, "max_completion_tokens", "max_tokens"),
        messages=tuple(_message(m) for m in kept),
        tools=tools,
        rules=_rules(body, tools),
        continuation=continuation,
    )


def text_job(body: Body) -> TextJob:
    """Read a `/v1/completions` body.

    Raises:
        RequestError: a field is missing or wrong; unknown fields are ignored.
    """
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    ids = isinstance(prompt, list) and all(isinstance(i, int) and i >= 0 for i in prompt)
    if not prompt or not (isinstance(prompt, str) or ids):
        raise RequestError("`prompt` must be one non-empty text or one list of token ids")
    top = None if body.get("logprobs") in (None, False) else _integer(body, "logprobs", 0, 0, _MAX_TOP_LOGPROBS)
    options = _options(body, top, "max_tokens")
    return TextJob(options if options.max_new is not None else replace(options, max_new=16), prompt)


def _options(body: Body, top_logprobs: int | None, *limits: str) -> Options:
    if body.get("n") not in (None, 1):
        raise RequestError("`n` must be 1: this server gives one choice per request", code="unsupported")
    stop = body.get("stop") or []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(s, str) for s in stops):
        raise RequestError("`stop` must be a text or a list of texts")
    max_new = next((_integer(body, name, 0, 1, 1 << 30) for name in limits if body.get(name) is not None), None)
    stream_options = body.get("stream_options")
    params = SamplingParams(
        temperature=_number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(body, "top_p", 1.0, 0.0, 1.0),
        top_k=max(0, _integer(body, "top_k", 0, -1, 1 << 30)),
        seed=None if body.get("seed") is None else _integer(body, "seed", 0, -(1 << 63), (1 << 63) - 1),
        top_logprobs=top_logprobs,
    )
    return Options(
        params=params,
        max_new=max_new,
        stops=tuple(stops),
        priority=_integer(body, "priority", 0, -(1 << 31), (1 << 31) - 1),
        stream=bool(body.get("stream")),
        include_usage=isinstance(stream_options, dict) and bool(stream_options.get("include_usage")),
    )


def _number(body: Body, name: str, default: float, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise RequestError(f"`{name}` must be a number from {low:g} to {high:g}")
    return float(value)


def _integer(body: Body, name: str, default: int, low: int, high: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if value is True and name == "logprobs":
        return low
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"`{name}` must be an integer from {low} to {high}")
    return value


def _continuation(body: Body, messages: list[dict[str, Any]]) -> str | None:
    if not body.get("continue_final_message"):
        return None
    if body.get("add_generation_prompt") is True:
        raise RequestError("`continue_final_message` and `add_generation_prompt` exclude each other")
    last = messages[-1]
    if last.get("role") != "assistant" or last.get("tool_calls") or len(messages) == 1:
        raise RequestError("`continue_final_message` needs a last message of role assistant, without tool calls")
    return _content(last)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise RequestError("a message's `content` must be a text or a list of text parts")
    return "".join(map(str, texts))


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """What chat templates expect: text content, and calls whose arguments are objects."""
    role = message.get("role")
    if not isinstance(role, str):
        raise RequestError("each message needs a `role`")
    normal = {**message, "role": "system" if role == "developer" else role, "content": _content(message)}
    if message.get("tool_calls"):
        normal["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
    else:
        normal.pop("tool_calls", None)
    return normal


def _tool_call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError("each of a message's `tool_calls` needs a `function` with a `name`")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # an answer that was cut off stays a text: the template quotes it
            arguments = json.loads(arguments)
    return {**call, "function": {**function, "arguments": arguments}}


def _tools(body: Body) -> tuple[Mapping[str, Any], ...]:
    tools = body.get("tools") or []
    if not isinstance(tools, list):
        raise RequestError("`tools` must be a list")
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            raise RequestError("each tool needs `type: function` and a `function` with a `name`")
        if not isinstance(function.get("parameters") or {}, dict):
            raise RequestError(f"the `parameters` of tool {function['name']} must be a JSON Schema object")
    return tuple(tools)


def _rules(body: Body, tools: Sequence[Mapping[str, Any]]) -> CallRules | None:
    choice = body.get("tool_choice") or "auto"
    functions = tuple(tool["function"] for tool in tools)
    parallel = body.get("parallel_tool_calls") is not False
    if isinstance(choice, dict):
        name = (choice.get("function") or {}).get("name")
        named = tuple(f for f in functions if f["name"] == name)
        if not named:
            raise RequestError(f"`tool_choice` names {name!r}, which is not among `tools`")
        return CallRules(named[:1], text=False, required=True, parallel=False)
    if choice not in ("auto", "none", "required"):
        raise RequestError("`tool_choice` must be auto, none, required or a function")
    if choice == "required" and not functions:
        raise RequestError("`tool_choice` required needs `tools`")
    if choice == "none" or not functions:
        return None
    return CallRules(functions, required=choice == "required", parallel=parallel)
