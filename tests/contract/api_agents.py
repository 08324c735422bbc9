"""Plain agents that speak the Responses and the Messages API over raw HTTP, and write their history as told."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import httpx

from agentspec.calls import ToolCall
from agentspec.tools_sandbox.declare import declared
from tests.contract.dialects import Answers, Event, MessagesAnswers, Part, ResponsesAnswers
from tests.contract.scripted import Endpoint, Exchange

Written = Callable[[list[Any], int], list[Any]]
"""How a client writes its history: the items as they came, the number of the request -> the items as they go."""

OBJECT = {"type": "object", "properties": {"order_id": {"type": "string"}}}


def as_it_came(items: list[Any], turn: int) -> list[Any]:
    return items


class ApiAgent:
    """What both APIs share. Each request has a model of its own: nothing is learnt of its pace."""

    path = ""
    answers: Answers

    def __init__(self, url: str, tools: Sequence[Any], *, stream: bool = True, key: str = "k", **more: Any) -> None:
        self.url = url
        self.tools = {declared(tool).name: tool for tool in tools}
        self.schemas = [self.schema(name, dict(declared(tool).spec.parameters)) for name, tool in self.tools.items()]
        self.stream = stream
        self.more = more
        self.turns = 0
        self.items: list[Any] = [{"role": "user", "content": f"question {uuid.uuid4().hex}"}]
        self.written: Written = as_it_came
        self.headers: dict[str, str] = {"authorization": f"Bearer {key}"}

    def schema(self, name: str, parameters: Any) -> Any:
        raise NotImplementedError

    def body(self) -> dict[str, Any]:
        raise NotImplementedError

    def took(self, answer: Event) -> list[Any]:
        """Add an answer to the history."""
        raise NotImplementedError

    def told(self, *results: tuple[ToolCall, Any]) -> None:
        """Add calls' results to the history."""
        raise NotImplementedError

    def also(self, name: str, tool: Callable[..., Any]) -> None:
        """A tool that nobody declared."""
        self.tools[name] = tool
        self.schemas.append(self.schema(name, OBJECT))

    def script(self, endpoint: Endpoint, *replies: Sequence[Part]) -> None:
        """The endpoint gives these answers in turn, then just speaks."""
        endpoint.script = lambda exchange, number: self.reply(
            exchange, number, replies[number] if number < len(replies) else ()
        )

    def reply(self, exchange: Exchange, number: int, parts: Sequence[Part]) -> Any:
        streamed = exchange.body.get("stream")
        return self.answers.streamed(number, parts) if streamed else self.answers.whole(number, parts)

    def post(self, body: dict[str, Any] | None = None) -> httpx.Response:
        return httpx.post(
            f"{self.url}/{self.path}", json=body or self.body(), headers=self.headers, timeout=20, trust_env=False
        )

    def think(self) -> list[ToolCall]:
        """One model request; the calls it made, and the answer is added to the conversation."""
        answer = self.post()
        self.turns += 1
        assert answer.status_code == 200, answer.text
        return list(self.calls(self.took(self.read(answer))))

    def read(self, answer: httpx.Response) -> Event:
        if "event-stream" not in answer.headers["content-type"]:
            return json.loads(answer.content)
        return self.put_together([json.loads(line[6:]) for line in answer.text.split("\n") if line[:6] == "data: "])

    def put_together(self, events: list[Event]) -> Event:
        raise NotImplementedError

    def calls(self, parts: list[Any]) -> Iterator[ToolCall]:
        raise NotImplementedError

    def act(self, calls: Iterable[ToolCall]) -> list[Any]:
        """Make the calls one after the other; their results, which are added to the conversation."""
        results = [(made, self.tools[made.name](**made.arguments)) for made in calls]
        self.told(*results)
        return [result for _, result in results]

    def turn(self) -> list[Any]:
        return self.act(self.think())

    def until(self, mark: bytes) -> None:
        """Ask, and close the connection as soon as these bytes have come."""
        seen = b""
        with httpx.stream(
            "POST", f"{self.url}/{self.path}", json=self.body(), headers=self.headers, trust_env=False
        ) as answer:
            for chunk in answer.iter_raw():
                seen += chunk
                if mark in seen:
                    return
        raise AssertionError(f"{mark!r} never came")


class ResponsesAgent(ApiAgent):
    """`way`: items | previous | conversation | conversation object | reference."""

    path = "responses"
    answers = ResponsesAnswers()

    def __init__(self, url: str, tools: Sequence[Any], *, way: str = "items", **more: Any) -> None:
        super().__init__(url, tools, **more)
        self.way = way
        self.last: str | None = None
        self.fresh = 0
        """Items that the endpoint knows already."""

    def schema(self, name: str, parameters: Any) -> Any:
        return {"type": "function", "name": name, "parameters": parameters, "strict": False}

    def body(self) -> dict[str, Any]:
        body = {"model": f"m-{uuid.uuid4().hex[:8]}", "tools": self.schemas, "stream": self.stream, **self.more}
        items = copy.deepcopy(self.items)
        if self.way == "reference":
            items = [{"type": "item_reference", "id": item["id"]} if self._is_kept(item) else item for item in items]
        if self.way in ("items", "reference"):
            return body | {"input": self.written(items, self.turns)}
        if self.way == "previous":
            body |= {"previous_response_id": self.last} if self.last else {}
        else:
            body["conversation"] = "conv_1" if self.way == "conversation" else {"id": "conv_1"}
        return body | {"input": self.written(items[self.fresh :], self.turns)}

    @staticmethod
    def _is_kept(item: Any) -> bool:
        """Whether the endpoint made it; the output of a local shell has an id as well, that of its call."""
        return "id" in item and not item["type"].endswith("_output")

    def put_together(self, events: list[Event]) -> Event:
        return events[-1]["response"]

    def took(self, answer: Event) -> list[Any]:
        self.last = answer["id"]
        self.items += answer["output"]
        self.fresh = len(self.items)
        return answer["output"]

    def calls(self, parts: list[Any]) -> Iterator[ToolCall]:
        for item in parts:
            if item["type"] == "function_call":
                yield ToolCall(item["name"], json.loads(item["arguments"]), item["call_id"])

    def told(self, *results: tuple[ToolCall, Any]) -> None:
        self.items += [{"type": "function_call_output", "call_id": c.id, "output": str(r)} for c, r in results]


class MessagesAgent(ApiAgent):
    """`thread`: the endpoint keeps the messages."""

    path = "messages"
    answers = MessagesAnswers()

    def __init__(self, url: str, tools: Sequence[Any], *, thread: bool = False, **more: Any) -> None:
        super().__init__(url, tools, **more)
        self.thread = thread
        self.last: str | None = None
        self.fresh = 0

    def schema(self, name: str, parameters: Any) -> Any:
        return {"name": name, "input_schema": parameters}

    def body(self) -> dict[str, Any]:
        body = {"model": f"m-{uuid.uuid4().hex[:8]}", "max_tokens": 99, "stream": self.stream, **self.more}
        messages = self.written(copy.deepcopy(self.items), self.turns)
        if not self.thread:
            return body | {"messages": messages, "tools": self.schemas}
        if self.last is None:
            return body | {"messages": messages, "tools": self.schemas, "thread": {"type": "create"}}
        thread = {"type": "continue", "previous_message_id": self.last}
        return body | {"messages": messages[self.fresh :], "thread": thread}

    def put_together(self, events: list[Event]) -> Event:
        message, written = {}, ""
        for event in events:
            if event["type"] == "message_start":
                message = event["message"]
            elif event["type"] == "content_block_start":
                message["content"].append(event["content_block"])
                written = ""
            elif event["type"] == "content_block_delta":
                block, delta = message["content"][-1], event["delta"]
                written += delta.get("partial_json", "")
                for name in ("text", "thinking"):
                    if name in block:
                        block[name] += delta.get(name, "")
            elif event["type"] == "content_block_stop" and written:
                message["content"][-1]["input"] = json.loads(written)
        return message

    def took(self, answer: Event) -> list[Any]:
        self.last = answer["id"]
        self.items.append({"role": "assistant", "content": answer["content"]})
        self.fresh = len(self.items)
        return answer["content"]

    def calls(self, parts: list[Any]) -> Iterator[ToolCall]:
        for block in parts:
            if block["type"] == "tool_use":
                yield ToolCall(block["name"], block["input"], block["id"])

    def told(self, *results: tuple[ToolCall, Any]) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": c.id, "content": str(r)} for c, r in results]
        self.items.append({"role": "user", "content": blocks})


AGENTS: dict[str, type[ApiAgent]] = {"responses": ResponsesAgent, "messages": MessagesAgent}
