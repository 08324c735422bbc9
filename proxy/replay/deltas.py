"""A recorded message in the shapes of chat completions: whole, or as deltas with the moment each is due.

A token is four characters of text, always: pace and usage are the same on every run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentspec.proxy.replay.matching import Point
from agentspec.proxy.replay.recordings import Call, Step

CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class Delta:
    """A piece of the answer, due after so many tokens of it."""

    after_tokens: int
    body: dict[str, Any]


def deltas(step: Step) -> Iterator[Delta]:
    """The answer in the order a model makes it: reasoning, text, then each call's name and arguments."""
    made = 0
    yield Delta(made, {"role": "assistant", "content": ""})
    for field, text in (("reasoning_content", step.reasoning), ("content", step.content)):
        for token in _tokens(text or ""):
            yield Delta(made, {field: token})
            made += 1
    for index, call in enumerate(step.calls):
        opening = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield Delta(made, {"tool_calls": [opening]})
        made += _count(call.name)
        for token in _tokens(_arguments(call)):
            yield Delta(made, {"tool_calls": [{"index": index, "function": {"arguments": token}}]})
            made += 1


def completion_tokens(step: Step) -> int:
    """How many tokens the model made for this message."""
    texts = [step.reasoning or "", step.content or ""]
    for call in step.calls:
        texts += [call.name, _arguments(call)]
    return sum(map(_count, texts))


def finish_reason(step: Step) -> str:
    """Why the model stopped."""
    return "tool_calls" if step.calls else "stop"


def usage(step: Step, messages: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Token counts of a request and its answer."""
    prompt = sum(_count(json.dumps(message, ensure_ascii=False)) for message in messages)
    made = completion_tokens(step)
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def envelope(point: Point, kind: str) -> dict[str, Any]:
    """What the whole answer and each chunk of it have in common; the same for the same point on every run."""
    return {
        "id": f"chatcmpl-{point.recording.model}-{point.at}",
        "object": kind,
        "created": int(point.answer.t or 0),
        "model": point.recording.model,
    }


def completion(point: Point, messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The answer of a request that does not stream."""
    step = point.answer
    message: dict[str, Any] = {"role": "assistant", "content": step.content}
    if step.reasoning:
        message["reasoning_content"] = step.reasoning
    if step.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
            for call in step.calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(step)}
    return {**envelope(point, "chat.completion"), "choices": [choice], "usage": usage(step, messages)}


def _arguments(call: Call) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)


def _tokens(text: str) -> Iterator[str]:
    for start in range(0, len(text), CHARS_PER_TOKEN):
        yield text[start : start + CHARS_PER_TOKEN]


def _count(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)
