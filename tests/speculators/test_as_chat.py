"""A Responses or Messages request as the chat that it means, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentspec.wire.as_chat import as_chat
from tests.speculators.turns import QUESTION, TOOLS, request_of


def call(identity: str, name: str = "get_order", order: str = "A1") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": {"order_id": order}}}


def result(identity: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": text}


CHAT = [
    {"role": "system", "content": "Be brief."},
    QUESTION,
    {"role": "assistant", "content": "I look.", "tool_calls": [call("c1"), call("c2", order="B2")]},
    result("c1", "sent"),
    result("c2", "lost"),
    {"role": "assistant", "content": "One is lost."},
    {"role": "user", "content": "Which?"},
]


def parsed(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the arguments of calls parsed: how they are written is each API's own business."""
    found = []
    for message in messages:
        calls = [
            c | {"function": c["function"] | {"arguments": json.loads(c["function"]["arguments"])}}
            for c in message.get("tool_calls", [])
        ]
        found.append(message | ({"tool_calls": calls} if calls else {}))
    return found


def made(identity: str, order: str = "A1") -> dict[str, Any]:
    head = {"type": "function_call", "id": f"fc_{identity}", "call_id": identity, "name": "get_order"}
    return head | {"arguments": json.dumps({"order_id": order})}


def told(identity: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": identity, "output": output}


def message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
AGAIN = {"role": "user", "content": "Which?"}
ITEMS = [
    QUESTION,
    *(THOUGHT, message("I look."), made("c1"), THOUGHT, made("c2", "B2"), told("c1", "sent"), told("c2", "lost")),
    *(THOUGHT, message("One is lost."), AGAIN),
]


def use(identity: str, order: str = "A1") -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "name": "get_order", "input": {"order_id": order}}


def used(identity: str, content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": identity, "content": content}


TEXT, THINKING = {"type": "text", "text": "I look."}, {"type": "thinking", "thinking": "x", "signature": "y"}
MESSAGES = [
    QUESTION,
    {"role": "assistant", "content": [THINKING, TEXT, use("c1"), use("c2", "B2")]},
    {"role": "user", "content": [used("c1", "sent"), used("c2", [{"type": "text", "text": "lost"}])]},
    {"role": "assistant", "content": "One is lost."},
    AGAIN,
]


def test_a_responses_request_is_the_chat_that_it_means() -> None:
    chat = as_chat("responses", request_of("responses", *ITEMS, instructions="Be brief."))
    assert chat is not None
    assert parsed(chat["messages"]) == CHAT
    assert (chat["tools"], chat["model"]) == ([TOOLS["chat"]], "m")


def test_a_messages_request_is_the_chat_that_it_means() -> None:
    chat = as_chat("messages", request_of("messages", *MESSAGES, system="Be brief."))
    assert chat is not None
    assert parsed(chat["messages"]) == CHAT
    assert (chat["tools"], chat["model"]) == ([TOOLS["chat"]], "m")


def test_a_chat_is_its_own() -> None:
    body = request_of("chat", *CHAT)
    assert as_chat("chat", body) is body


@pytest.mark.parametrize("system", ["Be brief.", [{"type": "text", "text": "Be brief.", "cache_control": {}}]])
def test_a_system_prompt_in_blocks_is_its_text(system: Any) -> None:
    chat = as_chat("messages", request_of("messages", system=system))
    assert chat is not None
    assert chat["messages"] == [{"role": "system", "content": "Be brief."}, QUESTION]


def test_calls_of_an_answer_without_text_are_one_message() -> None:
    chat = as_chat(
        "responses", request_of("responses", QUESTION, made("c1"), made("c2"), told("c1", ""), told("c2", ""))
    )
    assert chat is not None
    assert [m["role"] for m in chat["messages"]] == ["user", "assistant", "tool", "tool"]
    assert len(chat["messages"][1]["tool_calls"]) == 2


def test_text_after_a_call_stays_with_it() -> None:
    chat = as_chat("responses", request_of("responses", QUESTION, made("c1"), message("I look."), told("c1", "x")))
    assert chat is not None
    assert parsed(chat["messages"])[1:] == [
        {"role": "assistant", "content": "I look.", "tool_calls": [call("c1")]},
        result("c1", "x"),
    ]


def test_reminders_beside_results_come_after_them() -> None:
    blocks = [{"type": "text", "text": "Remember."}, used("c1", "sent")]
    said = [QUESTION, {"role": "assistant", "content": [use("c1")]}, {"role": "user", "content": blocks}]
    chat = as_chat("messages", request_of("messages", *said))
    assert chat is not None
    assert chat["messages"][2:] == [result("c1", "sent"), {"role": "user", "content": "Remember."}]


@pytest.mark.parametrize("given", ["Where is A1?", [{"role": "user", "content": [
    {"type": "input_text", "text": "Where "}, {"type": "input_text", "text": "is A1?"}]}]])  # fmt: skip
def test_an_input_in_any_form_is_the_users_question(given: Any) -> None:
    chat = as_chat("responses", {**request_of("responses"), "input": given})
    assert chat is not None
    assert chat["messages"] == [QUESTION]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
FILE = {"type": "input_file", "file_id": "f"}
UNTRANSLATABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "an image": ("responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
    "a file": ("responses", {"input": [{"role": "user", "content": [FILE]}]}),
    "an image as a result": ("responses", {"input": [QUESTION, made("c"), told("c", [{"type": "input_image"}])]}),
    "a custom call": ("responses", {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "x", "input": ""}]}),
    "a shell call": ("responses", {"input": [{"type": "local_shell_call", "call_id": "c", "action": {}}]}),
    "a reference": ("responses", {"input": [QUESTION, {"type": "item_reference", "id": "msg_1"}]}),
    "a search": ("responses", {"input": [{"type": "web_search_call", "id": "ws_1"}]}),
    "a conversation": ("responses", {"conversation": "conv_1"}),
    "a previous answer": ("responses", {"previous_response_id": "resp_1"}),
    "a provider's tool": ("responses", {"tools": [TOOLS["responses"], {"type": "web_search"}]}),
    "a free-text tool": ("responses", {"tools": [{"type": "custom", "name": "x"}]}),
    "an image block": ("messages", {"messages": [{"role": "user", "content": [IMAGE]}]}),
    "an image in a result": ("messages", {"messages": [{"role": "user", "content": [used("c", [IMAGE])]}]}),
    "a document": ("messages", {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}),
    "a server's call": ("messages", {"messages": [
        {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "x", "input": {}}]}]}),
    "a server's tool": ("messages", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    "a thread": ("messages", {"thread": {"type": "continue", "previous_message_id": "msg_1"}}),
    "a system image": ("messages", {"system": [IMAGE]}),
}  # fmt: skip


@pytest.mark.parametrize("what", UNTRANSLATABLE)
def test_what_no_chat_can_say_makes_the_whole_untranslatable(what: str) -> None:
    api, more = UNTRANSLATABLE[what]
    assert as_chat(api, request_of(api) | more) is None


ODD = [None, 1, "x", [], {}, [1], [None], {"a": 1}]
NAMES = ["input", "messages", "tools", "system", "instructions"]


@pytest.mark.parametrize("api", ["responses", "messages"])
@pytest.mark.parametrize("name", NAMES)
def test_an_odd_request_raises_nothing(api: str, name: str) -> None:
    for odd in ODD:
        as_chat(api, request_of(api) | {name: odd})
    for key in ("content", "role", "type", "arguments", "call_id", "name", "input", "output"):
        for odd in ODD:
            for kind in ("message", "function_call", "function_call_output"):
                as_chat("responses", request_of("responses", {"type": kind, "role": "user", key: odd}))
            as_chat("messages", request_of("messages", {"role": "assistant", "content": [use("c") | {key: odd}]}))
