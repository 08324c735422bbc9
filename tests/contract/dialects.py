"""Answers as the Responses and the Messages API write them, streamed and whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.contract.scripted import Gate, Reply, Step

Event = dict[str, Any]
JSON = [(b"content-type", b"application/json")]


@dataclass(frozen=True)
class Text:
    text: str = "Let me look."


@dataclass(frozen=True)
class Thought:
    text: str = "I think."


@dataclass(frozen=True)
class Made:
    """A call of a function tool."""

    name: str
    arguments: Any
    id: str = "call_1"

    @property
    def json(self) -> str:
        return json.dumps(self.arguments)


@dataclass(frozen=True)
class Item:
    """Any other part of an answer, as the API writes it."""

    value: Event


Part = Text | Thought | Made | Item | Gate


def halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


class ResponsesAnswers:
    """The Responses API."""

    def streamed(self, number: int, parts: Sequence[Part]) -> Iterator[Step]:
        yield self._event({"type": "response.created", "response": self._frame(number, "in_progress", [])})
        output = []
        for index, part in enumerate(parts):
            if isinstance(part, Gate):
                yield part
                continue
            done = self.item(part, number, index)
            at = {"output_index": len(output), "item_id": done["id"]}
            begun = done | {name: "" for name in ("arguments", "input") if name in done}
            begun |= {name: [] for name in ("content", "summary") if name in done}
            yield self._event({"type": "response.output_item.added", "item": begun} | at)
            for event in self._inside(part, done):
                yield self._event(event | at)
            yield self._event({"type": "response.output_item.done", "item": done} | at)
            output.append(done)
        yield self._event({"type": "response.completed", "response": self._frame(number, "completed", output)})

    def whole(self, number: int, parts: Sequence[Part], status: str = "completed") -> Reply:
        gates: list[Step] = [part for part in parts if isinstance(part, Gate)]
        output = [self.item(part, number, i) for i, part in enumerate(parts) if not isinstance(part, Gate)]
        return Reply([*gates, json.dumps(self._frame(number, status, output)).encode()], 200, JSON)

    @staticmethod
    def item(part: Part, number: int, index: int) -> Event:
        mark = f"{number}_{index}"
        if isinstance(part, Text):
            content = [{"type": "output_text", "text": part.text, "annotations": []}]
            head = {"type": "message", "id": f"msg_{mark}", "status": "completed"}
            return head | {"role": "assistant", "content": content}
        if isinstance(part, Thought):
            return {"type": "reasoning", "id": f"rs_{mark}", "summary": [{"type": "summary_text", "text": part.text}]}
        if isinstance(part, Made):
            head = {"type": "function_call", "id": f"fc_{mark}", "status": "completed", "call_id": part.id}
            return head | {"name": part.name, "arguments": part.json}
        assert isinstance(part, Item)
        return {"id": f"item_{mark}", "status": "completed"} | part.value

    @staticmethod
    def _inside(part: Part, done: Event) -> Iterator[Event]:
        if isinstance(part, Text):
            yield from ({"type": "response.output_text.delta", "delta": piece} for piece in halves(part.text))
        elif isinstance(part, Thought):
            kind = "response.reasoning_summary_text.delta"
            yield from ({"type": kind, "delta": piece} for piece in halves(part.text))
        elif isinstance(part, Made):
            kind = "response.function_call_arguments"
            yield from ({"type": f"{kind}.delta", "delta": piece} for piece in halves(part.json))
            yield {"type": f"{kind}.done", "arguments": part.json}
        elif done["type"] == "custom_tool_call":
            kind = "response.custom_tool_call_input"
            yield from ({"type": f"{kind}.delta", "delta": piece} for piece in halves(done["input"]))
            yield {"type": f"{kind}.done", "input": done["input"]}

    @staticmethod
    def _frame(number: int, status: str, output: list[Event]) -> Event:
        usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
        frame = {"id": f"resp_{number}", "object": "response", "status": status, "output": output}
        return frame | {"usage": usage if status == "completed" else None}

    @staticmethod
    def _event(payload: Event) -> bytes:
        return f"event: {payload['type']}\ndata: {json.dumps(payload)}\n\n".encode()


class MessagesAnswers:
    """The Messages API."""

    def streamed(self, number: int, parts: Sequence[Part]) -> Iterator[Step]:
        yield self._event({"type": "message_start", "message": self._frame(number, [], None)})
        index = 0
        for part in parts:
            if isinstance(part, Gate):
                yield part
                continue
            empty = {"text": "", "thinking": "", "signature": "", "input": {}}
            block = self.block(part)
            begun = block | {name: value for name, value in empty.items() if name in block}
            yield self._event({"type": "content_block_start", "index": index, "content_block": begun})
            for delta in self._deltas(part, block):
                yield self._event({"type": "content_block_delta", "index": index, "delta": delta})
            yield self._event({"type": "content_block_stop", "index": index})
            index += 1
        delta = {"stop_reason": _reason(parts), "stop_sequence": None}
        yield self._event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 4}})
        yield self._event({"type": "message_stop"})

    def whole(self, number: int, parts: Sequence[Part]) -> Reply:
        gates: list[Step] = [part for part in parts if isinstance(part, Gate)]
        blocks = [self.block(part) for part in parts if not isinstance(part, Gate)]
        return Reply([*gates, json.dumps(self._frame(number, blocks, _reason(parts))).encode()], 200, JSON)

    @staticmethod
    def block(part: Part) -> Event:
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        if isinstance(part, Thought):
            return {"type": "thinking", "thinking": part.text, "signature": "c2ln"}
        if isinstance(part, Made):
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
        assert isinstance(part, Item)
        return part.value

    @staticmethod
    def _deltas(part: Part, block: Event) -> Iterator[Event]:
        if isinstance(part, Text):
            yield from ({"type": "text_delta", "text": piece} for piece in halves(part.text))
        elif isinstance(part, Thought):
            yield from ({"type": "thinking_delta", "thinking": piece} for piece in halves(part.text))
            yield {"type": "signature_delta", "signature": "c2ln"}
        elif "input" in block:
            pieces = halves(json.dumps(block["input"]))
            yield from ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces))

    @staticmethod
    def _frame(number: int, content: list[Event], reason: str | None) -> Event:
        frame = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": content}
        usage = {"input_tokens": 9, "output_tokens": 1}
        return frame | {"stop_reason": reason, "stop_sequence": None, "usage": usage}

    @staticmethod
    def _event(payload: Event) -> bytes:
        return f"event: {payload['type']}\ndata: {json.dumps(payload)}\n\n".encode()


def _reason(parts: Sequence[Part]) -> str:
    return "tool_use" if any(isinstance(part, Made) for part in parts) else "end_turn"


Answers = ResponsesAnswers | MessagesAnswers
