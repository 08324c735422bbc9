"""Which conversation a request of the Responses API belongs to, in all the ways in which clients continue one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.api_agents import ResponsesAgent, Written
from tests.contract.dialects import Item, Made, Text
from tests.contract.scripted import Gate, eventually
from tests.contract.support import Guesses
from tests.contract.turns import SERVED, Get, all_served, next_key, trajectories, windows

WAYS = ["items", "previous", "conversation", "conversation object", "reference"]


@pytest.fixture
def get() -> Get:
    return Get()


@pytest.fixture
def talk(endpoint: Any, start: Any, join: Any, get: Get) -> Any:
    """talk(way): an agent that is asked to call get("k0"), get("k1"), … in its turns; its proxy as `agent.proxy`."""

    def of(way: str, stream: bool = True, **more: Any) -> Any:
        proxy = start(Guesses(next_key))
        agent: Any = ResponsesAgent(join(proxy, get.tool).base_url, [get.tool], way=way, stream=stream, **more)
        agent.proxy = proxy
        agent.script(endpoint, *(get.asked(number) for number in range(4)))
        return agent

    return of


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
        {"role": "system" if turn % 2 else "developer", "content": "be brief"},
        *items,
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
    outcomes = {bet["arguments"]: bet["outcome"] in SERVED for bet in agent.proxy.settled(3)}
    assert outcomes == {'{"key":"k0"}': True, '{"key":"k2"}': True, '{"key":"k4"}': False}, "two calls in each turn"
    trajectories(agent.proxy, 3)


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


@pytest.mark.parametrize(
    ("kind", "way"), [*((kind, "items") for kind in OUTPUTS), *(("local_shell_call", way) for way in WAYS[1:])]
)
def test_calls_without_json_hold_reads_back_until_their_output_is_told(
    endpoint: Any, talk: Any, get: Get, kind: str, way: str
) -> None:
    call, output = OUTPUTS[kind]
    agent = talk(way)
    agent.script(endpoint, [Text(), get.gate("k0"), Made("get", {"key": "k0"}, "c_r"), Item(call)])
    (read,) = agent.think()
    assert windows(agent.proxy) == 1
    agent.act([read])
    assert get.runs == ["k0", "k0"], "read again, after the write"
    agent.items.append(output)
    agent.think()
    assert windows(agent.proxy) == 0
    trajectories(agent.proxy, 2)


@pytest.mark.parametrize("way", WAYS)
def test_a_write_holds_reads_back_until_its_own_result_is_told(endpoint: Any, talk: Any, get: Get, way: str) -> None:
    """The agent tells the results of its parallel calls one after the other; the slow write's comes last."""
    agent = talk(way, instructions="Be brief.")
    agent.script(endpoint, [Made("get", {"key": "k0"}, "c_r"), Made("cancel", {}, "c_w")])
    read, _ = agent.think()
    agent.act([read])
    agent.think()
    assert windows(agent.proxy) == 1, "the write's result has not been told"


@pytest.mark.parametrize("way", WAYS)
def test_a_slow_writes_result_that_is_told_later_ends_the_waiting(endpoint: Any, talk: Any, get: Get, way: str) -> None:
    agent = talk(way)
    agent.script(endpoint, [Made("get", {"key": "k0"}, "c_r"), Made("cancel", {}, "c_w")], [Text("Wait.")])
    read, write = agent.think()
    agent.act([read])
    agent.think()
    agent.told((write, "ok"))
    agent.think()
    assert windows(agent.proxy) == 0


@pytest.mark.parametrize("kind", ["custom_tool_call", "shell_call"])
def test_a_client_that_closes_after_a_complete_call_without_json_goes_on_from_it(
    endpoint: Any, talk: Any, get: Get, kind: str
) -> None:
    call, output = OUTPUTS[kind]
    agent = talk("items")
    steps = list(agent.answers.streamed(0, [Item(call)]))
    done = next(i for i, step in enumerate(steps) if b"output_item.done" in step)
    endpoint.script = lambda exchange, number: [*steps[: done + 1], Gate()]
    agent.until(b"output_item.done")
    eventually(lambda: endpoint.exchanges[0].cancelled.is_open)
    assert windows(agent.proxy) == 1, "the agent has the whole call"
    agent.items += [{"id": "item_0_0"} | call, output]
    agent.script(endpoint)
    agent.think()
    assert windows(agent.proxy) == 0


def test_a_tool_of_a_namespace_is_not_the_declared_tool_of_that_name(endpoint: Any, talk: Any, get: Get) -> None:
    """`crm.get` is somebody else's: nobody declared it, so it counts as a write."""
    agent = talk("items")
    agent.schemas.append({"type": "namespace", "name": "crm", "description": "", "tools": [agent.schemas[0]]})
    there = {"type": "function_call", "namespace": "crm", "name": "get", "call_id": "c_w", "arguments": '{"key":"k0"}'}
    agent.script(endpoint, [Text(), get.gate("k0"), Item(there)], [Text("Done.")])
    agent.think()
    assert windows(agent.proxy) == 1
    agent.items.append({"type": "function_call_output", "call_id": "c_w", "output": "theirs"})
    agent.think()
    assert windows(agent.proxy) == 0
    assert {bet["outcome"] for bet in agent.proxy.settled(2)} == {"stale", "miss"}, "nothing was taken for `get`"
    trajectories(agent.proxy, 2)
