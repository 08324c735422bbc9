"""The answers of `/v1/responses`: items that open, grow and close one after the other, every event numbered."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentspec.errors import ApiError
from agentspec.verifier.engine.interface import Token
from agentspec.verifier.server.answer import Choice, Json, Usage, label
from agentspec.verifier.server.assembler import Piece
from agentspec.verifier.server.deltas import CallArguments, CallStart, Delta, ReasoningDelta, TextDelta
from agentspec.verifier.server.logprobs import token_logprobs
from agentspec.verifier.server.options import Options
from agentspec.verifier.server.reply import new_id

_ECHOED = (
    "instructions",
    "metadata",
    "max_output_tokens",
    "reasoning",
    "safety_identifier",
    "prompt_cache_key",
    "user",
)
_EVENT_OF = {"message": "output_text", "reasoning": "reasoning_text", "function_call": "function_call_arguments"}


@dataclass(slots=True)
class ResponseShape:
    """`/v1/responses`. One choice only.

    Attributes:
        asked: the request's body, parts of which the answer repeats.
    """

    model: str
    piece: Piece
    options: Options
    asked: Mapping[str, Any]
    id: str = field(default_factory=lambda: new_id("resp_"))
    created: int = field(default_factory=lambda: int(time.time()))
    named_events: bool = True
    _output: list[Json] = field(default_factory=list)
    _open: bool = False
    _events: int = 0

    def opening(self) -> list[Json]:
        response = self._response("in_progress")
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
        ]

    def chunks(self, choice: Choice, deltas: list[Delta], tokens: list[Token]) -> list[Json]:
        events: list[Json] = []
        logprobs = self._logprobs(tokens)
        for delta in deltas:
            events += self._say(delta, logprobs)
            logprobs = []
        return events

    def closing(self, choice: Choice, tokens: list[Token]) -> list[Json]:
        events = [] if self._output else self._begin({"type": "message", "role": "assistant", "content": []}, "msg_")
        return events + self._close("completed" if choice.reason != "length" else "incomplete", self._logprobs(tokens))

    def ending(self, choices: list[Choice], usage: Usage) -> list[Json]:
        response = self._ended(choices, usage)
        return [self._event(f"response.{response['status']}", response=response)]

    def failed(self, error: ApiError) -> list[Json]:
        told = {"code": "server_error", "message": error.message}
        return [self._event("response.failed", response=self._response("failed", error=told))]

    def whole(self, choices: list[Choice], usage: Usage) -> Json:
        for choice in choices:
            self.chunks(choice, choice.deltas, choice.tokens)
            self.closing(choice, [])
        return self._ended(choices, usage)

    def _ended(self, choices: list[Choice], usage: Usage) -> Json:
        cut = any(choice.reason == "length" for choice in choices)
        told: Json = {"usage": _usage(usage), **label(usage.drafts, lossy=self.options.lossy)}
        if cut:
            told["incomplete_details"] = {"reason": "max_output_tokens"}
        return self._response("incomplete" if cut else "completed", **told)

    def _response(self, status: str, **more: Any) -> Json:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": list(self._output),
            "parallel_tool_calls": self.asked.get("parallel_tool_calls") is not False,
            "previous_response_id": None,
            "store": False,
            "temperature": self.options.params.temperature,
            "text": self.asked.get("text") or {"format": {"type": "text"}},
            "tool_choice": self.asked.get("tool_choice") or "auto",
            "tools": self.asked.get("tools") or [],
            "top_p": self.options.params.top_p,
            "truncation": "disabled",
            "usage": None,
            **{name: self.asked.get(name) for name in _ECHOED},
            **more,
        }

    def _event(self, kind: str, **told: Any) -> Json:
        self._events += 1
        return {"type": kind, "sequence_number": self._events - 1, **told}

    def _logprobs(self, tokens: list[Token]) -> list[Json]:
        return [] if self.options.params.top_logprobs is None else token_logprobs(tokens, self.piece)

    # -- items: what is said lies in the last one of the output ------------------------------------------------------

    def _say(self, delta: Delta, logprobs: list[Json]) -> list[Json]:
        match delta:
            case TextDelta(text):
                events = self._in({"type": "message", "role": "assistant", "content": []}, "msg_")
                part = self._output[-1]["content"][0]
                part["text"] += text
                part["logprobs"] += logprobs
                return [*events, self._delta("output_text", text, content_index=0, logprobs=logprobs)]
            case ReasoningDelta(text):
                events = self._in({"type": "reasoning", "summary": [], "content": []}, "rs_")
                self._output[-1]["content"][0]["text"] += text
                return [*events, self._delta("reasoning_text", text, content_index=0)]
            case CallStart(_, call_id, name):
                call = {"type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
                return self._close("completed", []) + self._begin(call, "fc_")
            case CallArguments(_, fragment):
                self._output[-1]["arguments"] += fragment
                return [self._delta("function_call_arguments", fragment)]

    def _delta(self, of: str, text: str, **more: Any) -> Json:
        return self._event(f"response.{of}.delta", **self._place(), delta=text, **more)

    def _place(self) -> Json:
        return {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1}

    def _in(self, item: Json, prefix: str) -> list[Json]:
        """Make sure that an item of this type is open."""
        if self._open and self._output[-1]["type"] == item["type"]:
            return []
        return self._close("completed", []) + self._begin(item, prefix)

    def _begin(self, item: Json, prefix: str) -> list[Json]:
        self._output.append({"id": new_id(prefix), "status": "in_progress", **item})
        self._open = True
        shown = {**self._output[-1], **({"content": []} if "content" in item else {})}
        events = [self._event("response.output_item.added", output_index=len(self._output) - 1, item=shown)]
        if "content" in item:
            kind = _EVENT_OF[item["type"]]
            part: Json = {"type": kind, "text": ""} | (
                {"annotations": [], "logprobs": []} if kind == "output_text" else {}
            )
            self._output[-1]["content"] = [part]
            events.append(self._event("response.content_part.added", **self._place(), content_index=0, part=dict(part)))
        return events

    def _close(self, status: str, logprobs: list[Json]) -> list[Json]:
        """Close the item that is open, if any."""
        if not self._open:
            return []
        item, self._open = self._output[-1], False
        item["status"] = status
        kind, place = _EVENT_OF[item["type"]], self._place()
        if item["type"] == "function_call":
            events = [self._event(f"response.{kind}.done", **place, name=item["name"], arguments=item["arguments"])]
        else:
            part = item["content"][0]
            more = {"logprobs": part["logprobs"]} if kind == "output_text" else {}
            if more:
                part["logprobs"] += logprobs
            place["content_index"] = 0
            events = [
                self._event(f"response.{kind}.done", **place, text=part["text"], **more),
                self._event("response.content_part.done", **place, part=part),
            ]
        return [
            *events,
            self._event("response.output_item.done", output_index=len(self._output) - 1, item=item),
        ]


def _usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
