"""Which conversation a request of the Messages API belongs to, however its client writes and marks it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.contract.api_agents import MessagesAgent, Written
from tests.contract.dialects import Item, Made, Text, Thought
from tests.contract.scripted import Gate, eventually
from tests.contract.support import Guesses
from tests.contract.turns import SERVED, Get, all_served, next_key, trajectories, windows

MARK = {"cache_control": {"type": "ephemeral"}}
THINKING = ("thinking", "redacted_thinking")


@pytest.fixture
def get() -> Get:
    return Get()


@pytest.fixture
def talk(endpoint: Any, start: Any, join: Any, get: Get) -> Any:
    """talk(): an agent that is asked to call get("k0"), get("k1"), … in its turns; its proxy as `agent.proxy`."""

    def of(**more: Any) -> Any:
        proxy = start(Guesses(next_key))
        agent: Any = MessagesAgent(join(proxy, get.tool).base_url, [get.tool], **more)
        agent.proxy = proxy
        agent.script(endpoint, *(get.asked(number) for number in range(4)))
        return agent

    return of


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("thread", [True, False])
def test_a_conversation_is_one_trajectory_and_each_of_its_reads_is_served(
    talk: Any, endpoint: Any, get: Get, thread: bool, stream: bool
) -> None:
    all_served(talk(thread=thread, stream=stream, system="Be brief."))
    assert get.runs == ["k0", "k1", "k2"]
    if thread:
        assert ["tools" in exchange.body for exchange in endpoint.exchanges] == [True, False, False]


def as_blocks(message: Any) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def marked_last(items: list[Any], turn: int) -> list[Any]:
    """The cache mark moves to the last block, as in Claude Code."""
    last = as_blocks(items[-1])
    return [*items[:-1], items[-1] | {"content": [*last[:-1], last[-1] | MARK]}]


def marked_everywhere(items: list[Any], turn: int) -> list[Any]:
    """Another block of every message is marked each time."""
    found = []
    for message in items:
        blocks = as_blocks(message)
        chosen = turn % len(blocks)
        found.append(message | {"content": [b | MARK if i == chosen else b for i, b in enumerate(blocks)]})
    return found


def without_thinking(items: list[Any], turn: int) -> list[Any]:
    return [
        m | {"content": [b for b in as_blocks(m) if b["type"] not in THINKING]} if m["role"] == "assistant" else m
        for m in items
    ]


def thinking_of_the_last_turn(items: list[Any], turn: int) -> list[Any]:
    """Thinking is kept within the turn that goes on, and stripped from earlier ones."""
    last = max((i for i, m in enumerate(items) if m["role"] == "assistant"), default=0)
    return [*without_thinking(items[:last], turn), *items[last:]]


def results_in_blocks(items: list[Any], turn: int) -> list[Any]:
    """Tool results as a string in one request, as text blocks in the next."""
    found = copy.deepcopy(items)
    for message in found if turn % 2 else []:
        for block in as_blocks(message):
            if block["type"] == "tool_result":
                block["content"] = [{"type": "text", "text": block["content"]}]
    return found


def reminders(items: list[Any], turn: int) -> list[Any]:
    """A reminder stands beside every tool result."""
    note = {"type": "text", "text": "<system-reminder>Keep the list in mind.</system-reminder>"}
    return [m | {"content": [*m["content"], note]} if isinstance(m["content"], list) and m["role"] == "user" else m
            for m in items]  # fmt: skip


HABITS: dict[str, Written] = {
    "marks move": marked_last,
    "marks everywhere": marked_everywhere,
    "thinking dropped": without_thinking,
    "thinking of the last turn only": thinking_of_the_last_turn,
    "results in blocks": results_in_blocks,
    "reminders": reminders,
    "user text as blocks": lambda items, turn: [
        m | {"content": as_blocks(m)} if turn % 2 and m["role"] == "user" else m for m in items
    ],
}


@pytest.mark.parametrize("habit", HABITS)
def test_however_a_client_writes_its_messages_the_conversation_is_recognised(talk: Any, habit: str) -> None:
    agent = talk()
    agent.written = HABITS[habit]
    all_served(agent)


SYSTEMS: dict[str, Any] = {
    "string": lambda turn: "Be brief.",
    "blocks": lambda turn: [{"type": "text", "text": "Be brief."}],
    "string, then blocks": lambda turn: [{"type": "text", "text": "Be brief."}] if turn % 2 else "Be brief.",
    "marks move": lambda turn: [{"type": "text", "text": "Be brief.", **(MARK if turn % 2 else {})}],
    "billing header": lambda turn: [
        {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={turn}f3a9;"},
        {"type": "text", "text": "Be brief.", **MARK},
    ],
    "nothing but a billing header": lambda turn: [{"type": "text", "text": f"x-anthropic-billing-header: cch={turn};"}],
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_however_a_client_writes_its_system_prompt_the_conversation_is_recognised(talk: Any, system: str) -> None:
    agent = talk()
    for number in range(3):
        agent.more["system"] = SYSTEMS[system](number)
        assert agent.turn() == [f"k{number}!"]
    trajectories(agent.proxy, 3)


def test_another_system_prompt_is_another_conversation(talk: Any) -> None:
    agent = talk()
    for number in range(2):
        agent.more["system"] = f"Be brief. {number}"
        assert agent.turn() == [f"k{number}!"]
    trajectories(agent.proxy, 1, 1)


def test_an_answer_as_a_string_or_as_a_block_is_the_same_answer(endpoint: Any, talk: Any, get: Get) -> None:
    """A client that marks the last message for the cache turns its string into a block, and back later."""

    def written(items: list[Any], turn: int) -> list[Any]:
        plain = [m | {"content": "Yes?"} if m["content"] == [{"type": "text", "text": "Yes?"}] else m for m in items]
        return plain if turn % 2 else items

    agent = talk()
    agent.written = written
    agent.script(endpoint, [Text("Yes?")], [Text("Yes?")], get.asked(0), get.asked(1))
    for said in ("hello", "so", "well"):
        assert agent.turn() == ([] if said != "well" else ["k0!"])
        if said != "well":
            agent.items.append({"role": "user", "content": said})
    assert agent.turn() == ["k1!"]
    trajectories(agent.proxy, 4)


@pytest.mark.parametrize("thread", [True, False])
@pytest.mark.parametrize("one_by_one", [False, True], ids=["one message", "a message for each call"])
def test_parallel_calls_are_written_either_way(
    endpoint: Any, talk: Any, get: Get, thread: bool, one_by_one: bool
) -> None:
    def written(items: list[Any], turn: int) -> list[Any]:
        found: list[Any] = []
        for message in items:
            if not isinstance(message["content"], list) or thread or not one_by_one:
                found.append(message)
            elif message["role"] == "assistant":
                uses = [{"role": "assistant", "content": [block]} for block in message["content"]]
            else:
                told = [{"role": "user", "content": [block]} for block in message["content"]]
                found += [m for pair in zip(uses, told, strict=True) for m in pair]
        return found

    agent = talk(thread=thread)
    agent.written = written
    pairs = [[Made("get", {"key": f"k{n}"}, f"call_{n}"), Made("get", {"key": f"x{n}"}, f"x_{n}")] for n in (0, 2)]
    agent.script(endpoint, *([get.gate(pair[0].arguments["key"]), *pair] for pair in pairs))
    assert agent.turn() == ["k0!", "x0!"]
    assert agent.turn() == ["k2!", "x2!"]
    assert agent.turn() == []
    outcomes = {bet["arguments"]: bet["outcome"] in SERVED for bet in agent.proxy.settled(3)}
    assert outcomes == {'{"key":"k0"}': True, '{"key":"k2"}': True, '{"key":"k4"}': False}, "two calls in each turn"
    trajectories(agent.proxy, 3)


@pytest.mark.parametrize("thread", [True, False])
@pytest.mark.parametrize("system", [{}, {"system": "Be brief."}], ids=["plain", "system"])
def test_a_write_holds_reads_back_until_its_own_result_is_told(
    endpoint: Any, talk: Any, thread: bool, system: dict[str, str]
) -> None:
    agent = talk(thread=thread, **system)
    agent.script(endpoint, [Made("get", {"key": "k0"}, "c_r"), Made("cancel", {}, "c_w")])
    read, _ = agent.think()
    agent.act([read])
    agent.think()
    assert windows(agent.proxy) == 1, "the write's result has not been told"


def test_a_pause_of_the_providers_own_tools_does_not_end_the_conversation(endpoint: Any, talk: Any, get: Get) -> None:
    """`pause_turn`: the client sends the answer so far back, and the model goes on."""
    search = Item({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}})
    found = Item({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []})
    agent = talk()
    agent.script(endpoint, [Thought(), search, found], get.asked(0), [Text("Done.")])
    assert agent.turn() == []
    agent.items.pop()  # an empty message of results: there were no calls of ours
    assert agent.turn() == ["k0!"]
    assert agent.think() == []
    trajectories(agent.proxy, 3)


def test_a_user_who_interrupts_an_answer_and_says_more_goes_on_with_the_conversation(
    endpoint: Any, talk: Any, get: Get
) -> None:
    agent = talk()
    assert agent.turn() == ["k0!"]
    endpoint.script = lambda exchange, number: [*list(agent.answers.streamed(1, [Text()]))[:3], Gate()]
    agent.until(b"text_delta")
    eventually(lambda: endpoint.exchanges[1].cancelled.is_open)
    agent.items.append({"role": "user", "content": "Stop. Look at the other one."})
    endpoint.script = lambda exchange, number: agent.reply(exchange, number, get.asked(1))
    assert agent.turn() == ["k1!"]
    trajectories(agent.proxy, 3)
