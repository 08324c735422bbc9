"""Which conversation a request of the Responses API belongs to, in all the ways in which clients continue one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.trajectory import calls_in
from tests.contract.api_agents import ResponsesAgent, Written
from tests.contract.dialects import Item, Made, Text, Thought
from tests.contract.scripted import Gate, eventually
from tests.contract.support import Guesses

SERVED = ("hit", "joined")
WAYS = ["items", "previous", "conversation", "conversation object", "reference"]


class Get:
    """A read with a key of its own for every turn."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.ran: dict[str, Gate] = {}

        @speculate(effect="read", reads={"things"}, stable_for=30.0)
        def get(key: str) -> str:
            self.runs.append(key)
            self.gate(key).open()
            return f"{key}!"

        self.tool = get

    def gate(self, key: str) -> Gate:
        return self.ran.setdefault(key, Gate())


@pytest.fixture
def get() -> Get:
    return Get()


def next_key(turn: Any) -> list[ToolCall]:
    """As many calls as the trajectory holds, so many have been guessed before."""
    return [ToolCall("get", {"key": f"k{len(calls_in(turn.history))}"})]


def one_trajectory(proxy: Any, turns: int) -> None:
    def told() -> list[int]:
        return [trajectory["turns"] for trajectory in proxy._reader.trajectories()]

    eventually(lambda: sum(told()) == turns, f"{turns} turns in the ledger")
    assert told() == [turns]


def asking(get: Get, number: int) -> list[Any]:
    key = f"k{number}"
    return [Thought(), Text(), get.gate(key), Made("get", {"key": key}, f"call_{number}")]


@pytest.fixture
def talk(endpoint: Any, start: Any, join: Any, get: Get) -> Any:
    """talk(way): an agent that is asked to call get("k0"), get("k1"), … in its turns; its proxy as `agent.proxy`."""

    def of(way: str, stream: bool = True, **more: Any) -> Any:
        proxy = start(Guesses(next_key))
        agent: Any = ResponsesAgent(join(proxy, get.tool).base_url, [get.tool], way=way, stream=stream, **more)
        agent.proxy = proxy
        agent.script(endpoint, *(asking(get, number) for number in range(4)))
        return agent

    return of


def all_served(agent: Any, turns: int = 3) -> None:
    for number in range(turns):
        assert agent.turn() == [f"k{number}!"]
    assert [bet["outcome"] in SERVED for bet in agent.proxy.settled(turns)] == [True] * turns
    one_trajectory(agent.proxy, turns)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_conversation_is_one_trajectory_and_each_of_its_reads_is_served(
    talk: Any, get: Get, way: str, stream: bool
) -> None:
    all_served(talk(way, stream, instructions="Be brief."))
    assert get.runs == ["k0", "k1", "k2"]


def keeping(kept: Any) -> Written:
    """Leave out what is not kept in this request."""
    return lambda items, turn: [item for item in items if kept(item, turn)]


def rewriting(**by_type: Any) -> Written:
    """Write items of a type (or role) otherwise in every second request."""

    def written(items: list[Any], turn: int) -> list[Any]:
        if turn % 2:
            return items
        change = [by_type.get(item.get("type", item.get("role"))) for item in items]
        return [how(item) if how else item for how, item in zip(change, items, strict=True)]

    return written


def as_string(item: Any) -> Any:
    return {"role": "assistant", "content": item["content"][0]["text"]}


HABITS: dict[str, Written] = {
    "reasoning is dropped": keeping(lambda item, turn: item.get("type") != "reasoning"),
    "reasoning is dropped later": keeping(lambda item, turn: item.get("type") != "reasoning" or turn == 1),
    "text as a string, or in parts": rewriting(message=as_string),
    "without ids": lambda items, turn: [{k: v for k, v in i.items() if k not in ("id", "status")} for i in items],
    "arguments are written anew": rewriting(
        function_call=lambda item: item | {"arguments": json.dumps(json.loads(item["arguments"]), indent=2)}
    ),
    "outputs in parts": rewriting(
        function_call_output=lambda item: item | {"output": [{"type": "input_text", "text": item["output"]}]}
    ),
    "the question in parts": rewriting(
        user=lambda item: item | {"type": "message", "content": [{"type": "input_text", "text": item["content"]}]}
    ),
    "system, or developer": lambda items, turn: [
        {"role": "system" if turn % 2 else "developer", "content": "be brief"}, *items
    ],
    "text is dropped": keeping(lambda item, turn: item.get("type") != "message"),
}


@pytest.mark.parametrize("habit", HABITS)
def test_however_a_client_writes_its_items_the_conversation_is_recognised(talk: Any, habit: str) -> None:
    agent = talk("items")
    agent.written = HABITS[habit]
    all_served(agent)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("one_by_one", [False, True], ids=["calls, then outputs", "each call with its output"])
def test_parallel_calls_are_written_either_way(endpoint: Any, talk: Any, get: Get, way: str, one_by_one: bool) -> None:
    def written(items: list[Any], turn: int) -> list[Any]:
        if not one_by_one:
            return items
        calls = [i for i in items if i.get("type") == "function_call" or str(i.get("id")).startswith("fc_")]
        outputs = [i for i in items if i.get("type") == "function_call_output"]
        begun = items[: items.index(calls[0])] if calls else items
        pairs = [item for n, output in enumerate(outputs) for item in (*calls[n : n + 1], output)]
        return [*begun, *pairs] if outputs else items

    agent = talk(way)
    agent.written = written
    pairs = [[Made("get", {"key": f"k{n}"}, f"call_{n}"), Made("get", {"key": f"x{n}"}, f"x_{n}")] for n in (0, 2)]
    agent.script(endpoint, *([get.gate(pair[0].arguments["key"]), *pair] for pair in pairs))
    assert agent.turn() == ["k0!", "x0!"]
    assert agent.turn() == ["k2!", "x2!"]
    assert agent.turn() == []
    one_trajectory(agent.proxy, 3)


def test_a_question_as_a_plain_string_is_the_same_question(endpoint: Any, talk: Any, get: Get) -> None:
    agent = talk("previous")
    agent.written = lambda items, turn: items[0]["content"] if turn == 0 else items
    all_served(agent)


OUTPUTS = {
    "custom_tool_call": (
        {"type": "custom_tool_call", "name": "shell", "input": "rm -rf x", "call_id": "c_w"},
        {"type": "custom_tool_call_output", "call_id": "c_w", "output": "gone"},
    ),
    "shell_call": (
        {"type": "shell_call", "call_id": "c_w", "action": {"commands": ["rm x"]}},
        {"type": "shell_call_output", "call_id": "c_w", "output": [{"stdout": "", "stderr": ""}]},
    ),
    "local_shell_call": (
        {"type": "local_shell_call", "call_id": "c_w", "action": {"type": "exec", "command": ["rm"], "env": {}}},
        {"type": "local_shell_call_output", "id": "c_w", "output": "{}"},
    ),
    "apply_patch_call": (
        {"type": "apply_patch_call", "call_id": "c_w", "operation": {"type": "delete_file", "path": "x"}},
        {"type": "apply_patch_call_output", "call_id": "c_w", "status": "completed", "output": "gone"},
    ),
    "computer_call": (
        {"type": "computer_call", "call_id": "c_w", "action": {"type": "click", "x": 1, "y": 2}},
        {"type": "computer_call_output", "call_id": "c_w", "output": {"type": "computer_screenshot"}},
    ),
}


def windows(agent: Any) -> int:
    """Writes that hold reads back right now."""
    return sum(link.writing() for link in agent.proxy.deps.runtimes._links.values())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_calls_without_json_hold_reads_back_until_their_output_is_told(
    endpoint: Any, talk: Any, get: Get, kind: str, way: str
) -> None:
    call, output = OUTPUTS[kind]
    agent = talk(way)
    agent.script(endpoint, [Text(), get.gate("k0"), Made("get", {"key": "k0"}, "c_r"), Item(call)])
    (read,) = agent.think()
    assert windows(agent) == 1
    agent.act([read])
    assert get.runs == ["k0", "k0"], "read again, after the write"
    agent.items.append(output)
    agent.think()
    assert windows(agent) == 0
    one_trajectory(agent.proxy, 2)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("instructions", [{}, {"instructions": "Be brief."}], ids=["plain", "instructions"])
def test_a_write_holds_reads_back_until_its_own_result_is_told(
    endpoint: Any, talk: Any, get: Get, way: str, instructions: dict[str, str]
) -> None:
    """The agent tells the results of its parallel calls one after the other; the slow write's comes last."""
    agent = talk(way, **instructions)
    agent.script(endpoint, [Made("get", {"key": "k0"}, "c_r"), Made("cancel", {}, "c_w")])
    read, write = agent.think()
    agent.act([read])
    agent.think()
    assert windows(agent) == 1, "the write's result has not been told"


@pytest.mark.parametrize("way", WAYS)
def test_a_slow_writes_result_that_is_told_later_ends_the_waiting(
    endpoint: Any, talk: Any, get: Get, way: str
) -> None:
    agent = talk(way)
    agent.script(endpoint, [Made("get", {"key": "k0"}, "c_r"), Made("cancel", {}, "c_w")])
    read, write = agent.think()
    agent.act([read])
    agent.think()
    agent.told((write, "ok"))
    agent.think()
    assert windows(agent) == 0
