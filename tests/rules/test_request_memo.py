"""What was read once is not read again: the memo behind the readers of all three APIs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec
import pytest

from agentspec.trajectory import Said
from agentspec.wire import chat, messages, request, responses
from agentspec.wire.request import Memo, message_memo, tools_memo

LIMIT_BYTES = 64 * 2**20


class Reader:
    """Counts how often it reads."""

    def __init__(self, found: Callable[[Any], Any] = lambda value: [value]) -> None:
        self.read: list[Any] = []
        self._found = found

    def __call__(self, value: Any) -> Any:
        self.read.append(value)
        return self._found(value)


def raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def test_the_same_bytes_are_the_same_object() -> None:
    reader = Reader()
    memo = Memo(reader, lambda found, size: size, 1000)
    first = memo(raw('{"a": 1}'))
    assert memo(raw('{"a": 1}')) is first
    inside = msgspec.json.decode(b'[ {"a": 1} ]', type=list[msgspec.Raw])[0]
    assert memo(inside) is first, "a piece of another document is the same bytes"
    assert len(reader.read) == 1


@pytest.mark.parametrize("other", ['{"a":1}', '{"a": 2}', '{"a": 1} ', '{"b": 1}'])
def test_other_bytes_are_read_for_themselves(other: str) -> None:
    reader = Reader()
    memo = Memo(reader, lambda found, size: size, 1000)
    assert memo(raw('{"a": 1}')) is not memo(raw(other))
    assert len(reader.read) == 2


def test_the_least_recently_used_is_forgotten() -> None:
    reader = Reader()
    memo = Memo(reader, lambda found, size: 10, 30)
    for number in (1, 2, 3):
        memo(raw(str(number)))
    memo(raw("1"))
    memo(raw("4"))  # 2 has to go
    reader.read.clear()
    for number in (1, 3, 4):
        memo(raw(str(number)))
    assert reader.read == []
    memo(raw("2"))
    assert reader.read == [2]


def test_one_that_is_larger_than_everything_allowed_does_not_stay() -> None:
    reader = Reader()
    memo = Memo(reader, lambda found, size: size, 100)
    memo(raw('"' + "x" * 1000 + '"'))
    memo(raw("1"))
    memo(raw('"' + "x" * 1000 + '"'))
    assert len(reader.read) == 3


def test_two_processes_do_not_share_their_hash() -> None:
    """Nobody can find two messages that are taken for one another: each memo has a secret of its own."""
    memos = [Memo(Reader(), lambda found, size: size, 1000) for _ in range(2)]
    for memo in memos:
        memo(raw("1"))
    assert set(memos[0]._known).isdisjoint(memos[1]._known)


def test_a_reader_that_raises_leaves_nothing_behind() -> None:
    def refuse(value: Any) -> Any:
        raise ValueError("no")

    memo = Memo(refuse, lambda found, size: size, 1000)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            memo(raw("1"))
    assert memo._held_bytes == 0


def test_many_threads_may_ask_at_once() -> None:
    ready = threading.Barrier(8)
    memo = Memo(Reader(lambda value: [value]), lambda found, size: 10, 10 * 50)
    wrong: list[Any] = []

    def ask(offset: int) -> None:
        ready.wait()
        for step in range(2000):
            number = (step * 7 + offset) % 120
            if memo(raw(str(number))) != [number]:
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert memo._held_bytes == sum(weight for _, weight in memo._known.values()) <= 500


# The readers' own memos


def said_in(api: ModuleType, body: dict[str, Any]) -> list[Said]:
    return list(api.read_request(json.dumps(body).encode()).said)


def conversation(api: ModuleType, turns: int) -> dict[str, Any]:
    """A history of this many turns, each with a call and its result."""
    said: list[Any] = [{"role": "user", "content": f"question in {api.__name__}"}]
    for number in range(turns):
        name, arguments = "get_order", {"order_id": f"A{number}"}
        identity = f"c{number}"
        if api is chat:
            function = {"name": name, "arguments": json.dumps(arguments)}
            calls = [{"id": identity, "type": "function", "function": function}]
            said.append({"role": "assistant", "content": None, "tool_calls": calls})
            said.append({"role": "tool", "tool_call_id": identity, "content": "sent"})
        elif api is responses:
            made = {"type": "function_call", "call_id": identity, "name": name, "arguments": json.dumps(arguments)}
            said += [made, {"type": "function_call_output", "call_id": identity, "output": "sent"}]
        else:
            use = {"type": "tool_use", "id": identity, "name": name, "input": arguments}
            result = {"type": "tool_result", "tool_use_id": identity, "content": "sent"}
            said += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return {"model": "m", ("input" if api is responses else "messages"): said, "tools": [{"name": "t", "type": "x"}]}


@pytest.mark.parametrize(
    ("api", "memo", "reader"),
    [(chat, "_messages", "read_message"), (responses, "_items", "read_item"), (messages, "_messages", "read_message")],
)
def test_a_long_history_that_comes_again_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch, api: ModuleType, memo: str, reader: str
) -> None:
    counting = Reader(getattr(api, reader))
    monkeypatch.setattr(api, memo, message_memo(counting))
    parsing = Reader(request.parsed)
    monkeypatch.setattr(request, "parsed", parsing)
    long = said_in(api, conversation(api, 200))
    assert len(counting.read) == 401
    parsing.read.clear()
    again = said_in(api, conversation(api, 200))
    longer = said_in(api, conversation(api, 201))
    assert len(counting.read) == 403, "the two messages that are new"
    assert len(parsing.read) <= 2
    assert all(one is other for one, other in zip(long, again, strict=True))
    assert all(one is other for one, other in zip(long, longer[:401], strict=True))


@pytest.mark.parametrize("api", [chat, responses, messages])
def test_tools_that_come_again_are_the_same_object(api: ModuleType) -> None:
    tools = {
        chat: {"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}},
        responses: {"type": "function", "name": "t", "parameters": {"type": "object"}},
        messages: {"name": "t", "input_schema": {"type": "object"}},
    }
    body = json.dumps(conversation(api, 1) | {"tools": [tools[api]]}).encode()
    first, again = api.read_request(body).tools, api.read_request(body).tools
    assert again is first
    assert first == {"t": {"type": "object"}}


HUGE: dict[str, Callable[[str], dict[str, Any]]] = {
    "content": lambda text: {"role": "user", "content": text},
    "a call's arguments": lambda text: {
        "role": "assistant",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": json.dumps({"x": text})}}],
    },
    "a call's id": lambda text: {"role": "assistant", "tool_calls": [{"id": text, "function": {"name": "f"}}]},
    "a custom call's id": lambda text: {"role": "assistant", "tool_calls": [{"id": text, "custom": {}}]},
    "a result's id": lambda text: {"role": "tool", "tool_call_id": text, "content": ""},
    "the role": lambda text: {"role": text, "content": ""},
}


def held_bytes(said: tuple[Said, ...]) -> int:
    """The text that a remembered message holds on to."""
    texts = [text for one in said for text in (one.role, *one.made, *one.refers, *one.answers)]
    calls = [repr(call) for one in said for call in one.calls]
    return sum(map(len, texts + calls))


@pytest.mark.parametrize("where", HUGE)
def test_messages_of_any_shape_stay_within_the_memory_allowed(where: str) -> None:
    memo = message_memo(chat.read_message)
    for number in range(90):
        memo(msgspec.Raw(json.dumps(HUGE[where](f"{number}" + "x" * 2**20)).encode()))
    assert sum(held_bytes(said) for said, _ in memo._known.values()) <= LIMIT_BYTES


def test_tools_of_any_size_stay_within_the_memory_allowed() -> None:
    memo = tools_memo(lambda tool: [(tool["name"], tool["schema"])])
    for number in range(40):
        tool = {"name": f"{number}", "schema": {"description": "x" * 2**20}}
        memo(msgspec.Raw(json.dumps([tool]).encode()))
    held = sum(len(schema["description"]) for schemas, _ in memo._known.values() for schema in schemas.values())
    assert held <= LIMIT_BYTES
