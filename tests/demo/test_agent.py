"""The agent's loop against a scripted endpoint on a real socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agentspec.proxy.demo.agent import MAX_TURNS, Agent
from agentspec.proxy.demo.questions import QUESTIONS, conversation
from agentspec.proxy.demo.shop import Shop
from agentspec.proxy.demo.tools import shop_tools, undecorated

Delta = dict[str, Any]


class Script:
    """A chat endpoint that streams prepared deltas, one list per request, and keeps what it was sent."""

    def __init__(self) -> None:
        self.turns: list[list[Delta]] = []
        self.requests: list[dict[str, Any]] = []
        self.sessions: list[str] = []
        self.url = ""

    async def answer(self, request: Request) -> Response:
        self.requests.append(await request.json())
        self.sessions.append(request.headers.get("x-agentspec-session", ""))
        return StreamingResponse(self._events(self.turns.pop(0)), media_type="text/event-stream")

    async def _events(self, deltas: list[Delta]) -> AsyncIterator[bytes]:
        for delta in deltas:
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
            yield f"data: {json.dumps(chunk)}\n\n".encode()
        yield b"data: [DONE]\n\n"


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    app = Starlette(routes=[Route("/v1/chat/completions", script.answer, methods=["POST"])])
    listener = socket.create_server(("127.0.0.1", 0))
    script.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield script
    server.should_exit = True
    thread.join()


@pytest.fixture
def agent(script: Script, shop: Shop) -> Iterator[Agent]:
    tools = shop_tools(shop)
    with openai.OpenAI(base_url=script.url, api_key="none", max_retries=0) as client:
        yield Agent(client, "m", [tool.schema for tool in tools], undecorated(tools))


def text(*pieces: str) -> list[Delta]:
    return [{"content": piece} for piece in pieces]


def call(call_id: str, name: str, *arguments: str, index: int = 0) -> list[Delta]:
    head = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    rest = [{"index": index, "function": {"arguments": piece}} for piece in arguments]
    return [{"tool_calls": [part]} for part in (head, *rest)]


def test_a_question_with_two_calls_in_a_row(script: Script, agent: Agent) -> None:
    script.turns = [
        text("Plan: the order", " first.") + call("c1", "order", '{"number"', ': "4420"}'),
        text("Plan: the parcel.") + call("c2", "track", '{"parcel": "PX58"}'),
        text("It is in ", "Geneva.\n"),
    ]
    answer = agent.ask("Where is order 4420?", "s-1")
    assert answer.text == "It is in Geneva."
    assert [line.split(" -> ")[0] for line in answer.calls] == [
        'order({"number": "4420"})',
        'track({"parcel": "PX58"})',
    ]
    kinds = [(span.kind, span.label) for span in answer.spans]
    assert kinds == [("model", "order"), ("tool", "order"), ("model", "track"), ("tool", "track"), ("model", "answer")]
    assert script.sessions == ["s-1"] * 3
    last = script.requests[-1]["messages"]
    assert last[:-4] == conversation("Where is order 4420?")
    assert [message["role"] for message in last[-4:]] == ["assistant", "tool", "assistant", "tool"]
    assert last[-4]["content"] == "Plan: the order first."
    assert json.loads(last[-3]["content"])["parcel"] == "PX58"
    assert (last[-4]["tool_calls"][0]["id"], last[-3]["tool_call_id"]) == ("c1", "c1")


def test_two_calls_in_one_turn_both_run(script: Script, agent: Agent) -> None:
    both = call("c1", "stock", '{"item": "tent"}') + call("c2", "stock", '{"item": "rope"}', index=1)
    script.turns = [both, text("7 and 41.")]
    answer = agent.ask("How many tents and ropes?", "s")
    assert len(answer.calls) == 2
    results = [json.loads(m["content"])["pieces"] for m in script.requests[1]["messages"] if m["role"] == "tool"]
    assert results == [7, 41]


@pytest.mark.parametrize(("name", "arguments"), [("fly", "{}"), ("stock", '{"thing": 1}'), ("stock", "{")])
def test_a_wrong_call_becomes_an_error_that_the_model_reads(
    script: Script, agent: Agent, name: str, arguments: str
) -> None:
    script.turns = [call("c1", name, arguments), text("Sorry.")]
    assert agent.ask("?", "s").text == "Sorry."
    assert "error" in json.loads(script.requests[1]["messages"][-1]["content"])


def test_an_agent_that_never_answers_is_stopped(script: Script, agent: Agent) -> None:
    script.turns = [call(f"c{turn}", "stock", '{"item": "tent"}') for turn in range(MAX_TURNS)]
    with pytest.raises(RuntimeError, match="no answer after"):
        agent.ask("?", "s")


def test_times_add_up_to_no_more_than_the_whole(script: Script, agent: Agent) -> None:
    script.turns = [call("c1", "stock", '{"item": "tent"}'), text("7")]
    answer = agent.ask("?", "s")
    assert 0.0 < answer.time_in("model") + answer.time_in("tool") <= answer.seconds


def test_a_fact_is_found_whatever_its_case() -> None:
    geneva = next(question for question in QUESTIONS if question.fact == "Geneva")
    assert geneva.answered_by("it is in GENEVA.")
    assert not geneva.answered_by("It is in Turin.")
