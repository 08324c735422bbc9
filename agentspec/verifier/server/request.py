"""From a JSON body to one frozen job: what a conversation may hold is checked here and nowhere else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentspec.errors import RequestError
from agentspec.verifier.server import fields
from agentspec.verifier.server.fields import Body
from agentspec.verifier.server.options import Options, read_options
from agentspec.verifier.verification.grammar import CallRules, Rules, TextRules

_MAX_TOP_LOGPROBS = 20
_DEFAULT_MAX_TOKENS = 16  # of plain completions, as in the API
_MOST_PROMPTS = 64

Functions = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ChatJob:
    """A turn of a conversation.

    Attributes:
        messages: normalized for the template: text content, arguments as objects.
        template: further variables for the template (`enable_thinking`, …).
        continuation: the answer's given beginning (`continue_final_message`), or None.
        rules: what the answer may hold; None: any text.
    """

    options: Options
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    template: Mapping[str, Any]
    rules: Rules | None
    continuation: str | None

    @property
    def callable(self) -> dict[str, Mapping[str, Any]]:
        """The functions that the answer may call, by name, with their parameters' schemas."""
        functions = self.rules.tools if isinstance(self.rules, CallRules) else ()
        return {function["name"]: function.get("parameters") or {} for function in functions}


@dataclass(frozen=True, slots=True)
class TextJob:
    """Plain completions of texts or of token ids."""

    options: Options
    prompts: tuple[str | list[int], ...]


def chat_job(body: Body) -> ChatJob:
    """Read a `/v1/chat/completions` body.

    Raises:
        RequestError: a field is missing or wrong; unknown fields are ignored.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise RequestError("`messages` must be a non-empty list of objects")
    top = fields.integer(body, "top_logprobs", 0, 0, _MAX_TOP_LOGPROBS) if body.get("logprobs") else None
    continuation = _continuation(body, messages)
    kept = messages if continuation is None else messages[:-1]
    tools = _tools(body)
    return ChatJob(
        options=read_options(body, top, "max_completion_tokens", "max_tokens"),
        messages=tuple(_message(m) for m in kept),
        tools=tools,
        template=fields.mapping(body, "chat_template_kwargs"),
        rules=_rules(body, tools),
        continuation=continuation,
    )


def next_messages(job: ChatJob, more: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The job's conversation with more messages, as its next request will have it."""
    return (*job.messages, *map(_message, more))


def text_job(body: Body) -> TextJob:
    """Read a `/v1/completions` body.

    Raises:
        RequestError: a field is missing or wrong; unknown fields are ignored.
    """
    for name in ("echo", "suffix"):
        if body.get(name):
            raise RequestError(f"`{name}` is not supported: leave it out", code="unsupported")
    logprobs = body.get("logprobs")
    top: int | None = None
    if logprobs is not None and logprobs is not False:
        top = 0 if logprobs is True else fields.integer(body, "logprobs", 0, 0, _MAX_TOP_LOGPROBS)
    options = read_options(body, top, "max_tokens")
    if options.max_new is None:
        options = replace(options, max_new=_DEFAULT_MAX_TOKENS)
    return TextJob(options, _prompts(body.get("prompt")))


def _prompts(given: Any) -> tuple[str | list[int], ...]:
    several = isinstance(given, list) and given and all(isinstance(item, str | list) for item in given)
    prompts = tuple(given) if several else (given,)
    if len(prompts) > _MOST_PROMPTS or not all(map(_is_prompt, prompts)):
        wanted = f"a non-empty text, a non-empty list of token ids, or a list of at most {_MOST_PROMPTS} of these"
        raise RequestError(f"`prompt` must be {wanted}")
    return prompts


def _is_prompt(given: Any) -> bool:
    if isinstance(given, list):
        return bool(given) and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in given)
    return isinstance(given, str) and bool(given)


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
    return fields.content(message.get("content"), "a message's `content`")


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """What chat templates expect: text content, calls whose arguments are objects, reasoning under one name."""
    role = message.get("role")
    if not isinstance(role, str):
        raise RequestError("each message needs a `role`")
    normal = {**message, "role": "system" if role == "developer" else role, "content": _content(message)}
    if message.get("tool_calls"):
        normal["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
    else:
        normal.pop("tool_calls", None)
    if isinstance(normal.get("reasoning"), str):
        normal.setdefault("reasoning_content", normal["reasoning"])
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


def _rules(body: Body, tools: Sequence[Mapping[str, Any]]) -> Rules | None:
    choice = body.get("tool_choice") or "auto"
    functions: Functions = tuple(tool["function"] for tool in tools)
    parallel = body.get("parallel_tool_calls") is not False
    answer = _answer_schema(body)
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        choice, functions = _allowed(choice, functions)
    if isinstance(choice, dict):
        return CallRules((_named(choice, functions),), text=False, required=True, parallel=False)
    if choice not in ("auto", "none", "required"):
        raise RequestError("`tool_choice` must be auto, none, required or a function")
    if choice == "required" and not functions:
        raise RequestError("`tool_choice` required needs `tools`")
    if choice == "none" or not functions:
        return _text_rules(body) if answer is None else TextRules(schema=answer)
    if choice == "required":
        return CallRules(functions, required=True, parallel=parallel)
    return CallRules(functions, parallel=parallel, answer=answer)


def _named(choice: Mapping[str, Any], functions: Functions) -> Mapping[str, Any]:
    named = choice.get("function")
    name = named.get("name") if isinstance(named, dict) else choice.get("name")
    found = next((function for function in functions if function["name"] == name), None)
    if found is None:
        raise RequestError(f"`tool_choice` names {name!r}, which is not among `tools`")
    return found


def _allowed(choice: Mapping[str, Any], functions: Functions) -> tuple[Any, Functions]:
    """A choice among some of the tools: the prompt keeps all of them, the answer may call these."""
    told = choice.get("allowed_tools")
    allowed: Mapping[str, Any] = told if isinstance(told, dict) else choice
    tools = allowed.get("tools")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RequestError("`tool_choice` of type allowed_tools needs a list of `tools`")
    return allowed.get("mode") or "auto", tuple(_named(tool, functions) for tool in tools)


def _text_rules(body: Body) -> TextRules | None:
    """What the whole answer must be, in vLLM's words (`structured_outputs`)."""
    wanted = fields.mapping(body, "structured_outputs")
    if not wanted:
        return None
    schema = {"type": "object"} if wanted.get("json_object") else fields.mapping(wanted, "json") or None
    pattern, choice = fields.text(wanted, "regex"), fields.texts(wanted, "choice")
    if sum(given is not None and given != () for given in (schema, pattern, choice)) != 1:
        raise RequestError("`structured_outputs` must be one of json, json_object, regex and choice")
    return TextRules(schema=schema, regex=pattern, choice=choice)


def _answer_schema(body: Body) -> Mapping[str, Any] | None:
    """The JSON Schema that a text answer must fit (`response_format`)."""
    wanted = fields.mapping(body, "response_format")
    kind = wanted.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    schema = fields.mapping(wanted, "json_schema").get("schema") if kind == "json_schema" else None
    if not isinstance(schema, dict):
        raise RequestError("`response_format` must be text, json_object, or json_schema with a `schema`")
    return schema
