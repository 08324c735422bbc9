"""What memory reads: the texts of messages, the results of calls and what is said of the tools, in all three APIs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentspec.proxy.trajectories import Relayed, TrajectoryIndex
from agentspec.trajectory import ASSISTANT, KEPT_CHARS, SYSTEM, TOOL, USER, Said, chain
from agentspec.wire import chat, messages, request, responses
from agentspec.wire.request import message_memo
from tests.wire.streams import values

slow_is_fine = settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
LIMIT_BYTES = 64 * 2**20
APIS: dict[str, ModuleType] = {"chat": chat, "messages": messages, "responses": responses}
TEXT_PARTS = {
    "chat": {SYSTEM: "text", USER: "text", ASSISTANT: "text", TOOL: "text"},
    "messages": {USER: "text", ASSISTANT: "text", TOOL: "text"},
    "responses": {SYSTEM: "input_text", USER: "input_text", ASSISTANT: "output_text", TOOL: "input_text"},
}
IMAGES: dict[str, dict[str, Any]] = {
    "chat": {"type": "image_url", "image_url": {"url": "data:secret"}},
    "messages": {"type": "image", "source": {"type": "base64", "data": "secret"}},
    "responses": {"type": "input_image", "image_url": "data:secret"},
}
ROLES = [(api, role) for api, roles in TEXT_PARTS.items() for role in roles if role != TOOL]

any_text = st.text(max_size=20) | st.sampled_from(["\ud800", "a\udfff", "\n", "\U0001f600", ""])


def read(api: str, message: Any) -> list[Said]:
    reader: Callable[[Any], list[Said]] = responses.read_item if api == "responses" else APIS[api].read_message
    return reader(message)


def result(api: str, content: Any, identity: Any = "c1", **more: Any) -> dict[str, Any]:
    """A message that holds the result of one call."""
    if api == "chat":
        return {"role": "tool", "tool_call_id": identity, "content": content, **more}
    if api == "responses":
        return {"type": "function_call_output", "call_id": identity, "output": content, **more}
    block = {"type": "tool_result", "tool_use_id": identity, "content": content, **more}
    return {"role": "user", "content": [block]}


def body(api: str, said: list[Any], **more: Any) -> bytes:
    return json.dumps({"model": "m", ("input" if api == "responses" else "messages"): said, **more}).encode()


def parts(api: str, role: str, texts: list[str]) -> list[dict[str, Any]]:
    return [{"type": TEXT_PARTS[api][role], "text": text} for text in texts]


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Texts


@pytest.mark.parametrize(("api", "role"), ROLES)
@given(texts=st.lists(any_text, max_size=4))
@slow_is_fine
def test_a_message_says_its_text_parts_a_line_each(api: str, role: str, texts: list[str]) -> None:
    [said] = read(api, {"role": role, "content": parts(api, role, texts)})
    assert (said.role, said.text, said.results, said.failed) == (role, "\n".join(texts), (), frozenset())


@pytest.mark.parametrize(("api", "role"), ROLES)
@given(text=any_text)
@slow_is_fine
def test_a_message_whose_content_is_text_says_it(api: str, role: str, text: str) -> None:
    [said] = read(api, {"role": role, "content": text})
    assert said.text == text


@pytest.mark.parametrize(("api", "role"), ROLES)
def test_images_and_reasoning_are_no_text(api: str, role: str) -> None:
    told = [
        *parts(api, role, ["one"]),
        IMAGES[api],
        {"type": "thinking", "thinking": "secret", "text": "secret"},
        *parts(api, role, ["two"]),
    ]
    [said] = read(api, {"role": role, "content": told, "reasoning_content": "secret", "reasoning": "secret"})
    assert said.text == "one\ntwo"
    assert read("responses", {"type": "reasoning", "summary": [{"type": "summary_text", "text": "secret"}]}) == []


@pytest.mark.parametrize(("api", "role"), ROLES)
@pytest.mark.parametrize("content", [None, 5, 1.5, True, {}, {"a": 1}, [], [None, 3, {}, [["x"]], {"type": ["text"]}]])
def test_content_that_is_no_text_says_nothing(api: str, role: str, content: Any) -> None:
    assert [said.text for said in read(api, {"role": role, "content": content})] == [""]
    assert [said.text for said in read(api, {"role": role})] == [""]


def test_a_developer_speaks_as_the_system() -> None:
    for api in ("chat", "responses"):
        [said] = read(api, {"role": "developer", "content": "be brief"})
        assert (said.role, said.text) == (SYSTEM, "be brief")


@pytest.mark.parametrize("role", ["function", "critic", "", None, 5, ["user"]])
def test_nobody_else_speaks(api: str, role: Any) -> None:
    assert [said.text for said in read(api, {"type": "message", "role": role, "content": "x"})] == [""]


def test_what_an_assistant_says_beside_its_calls_is_its_text() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "secret"}'}}
    [said] = read("chat", {"role": "assistant", "content": "looking", "tool_calls": [call]})
    assert (said.text, len(said.calls)) == ("looking", 1)
    [said] = read("chat", {"role": "assistant", "content": None, "tool_calls": [call]})
    assert (said.text, len(said.calls)) == ("", 1)
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "secret"}}
    [said] = read("messages", {"role": "assistant", "content": [{"type": "text", "text": "looking"}, use]})
    assert (said.text, len(said.calls)) == ("looking", 1)
    [said] = read("responses", {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": "secret"}'})
    assert (said.text, len(said.calls)) == ("", 1)


@pytest.mark.parametrize("given_as", ["be brief", [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]])
def test_the_system_prompt_is_read_wherever_it_stands(given_as: Any) -> None:
    wanted = "be brief" if isinstance(given_as, str) else "be\nbrief"
    asked = [{"role": "user", "content": "hello"}]
    for api, where in (("messages", "system"), ("responses", "instructions")):
        said = APIS[api].read_request(body(api, asked, **{where: given_as})).said
        assert [(one.role, one.text) for one in said] == [(SYSTEM, wanted), (USER, "hello")]


def test_instructions_that_come_again_are_the_same_object() -> None:
    """Kept trajectories hold on to their messages: one prompt must not stay once for each of their turns."""
    first, again = (responses.read_request(body("responses", [], instructions="be brief")).said for _ in range(2))
    assert first[0] is again[0]


@pytest.mark.parametrize("instructions", [None, "", [], {}, 5, "brief", {"a": [None]}])
def test_instructions_of_any_kind_are_read(instructions: Any) -> None:
    said = responses.read_request(body("responses", [], instructions=instructions)).said
    assert [one.text for one in said] == (
        [instructions if isinstance(instructions, str) else ""] if instructions else []
    )


def test_a_block_that_changes_each_time_is_no_part_of_the_system_prompt() -> None:
    system = [{"type": "text", "text": "x-anthropic-billing-header: 5"}, {"type": "text", "text": "be brief"}]
    [said] = messages.read_request(body("messages", [], system=system)).said
    assert said.text == "be brief"


def test_input_that_is_bare_text_is_the_users() -> None:
    [said] = responses.read_request(json.dumps({"model": "m", "input": "hello"}).encode()).said
    assert (said.role, said.text) == (USER, "hello")


# Results


@given(texts=st.lists(any_text, max_size=4))
@slow_is_fine
def test_a_result_is_its_text_parts_a_line_each(api: str, texts: list[str]) -> None:
    [said] = read(api, result(api, parts(api, TOOL, texts)))
    assert (said.role, said.answers, said.results, said.text) == (TOOL, ("c1",), ("\n".join(texts),), "")
    assert said.failed == frozenset()


@given(text=any_text)
@slow_is_fine
def test_a_result_that_is_text_is_that_text(api: str, text: str) -> None:
    [said] = read(api, result(api, text))
    assert (said.results, said.text) == ((text,), "")


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, ""),
        ([], ""),
        (5, "5"),
        (1.5, "1.5"),
        (False, "false"),
        ({"id": 7, "a": [1, None]}, '{"id":7,"a":[1,null]}'),
        ({"type": "order", "id": 7}, '{"type":"order","id":7}'),
        ([{"stdout": "x"}], '[{"stdout":"x"}]'),
        ([[{"type": "text", "text": "x"}]], '[[{"type":"text","text":"x"}]]'),
        ({"name": "Zoë"}, '{"name":"Zoë"}'),
        ({"name": "\ud800"}, '{"name":"\\ud800"}'),
        ({"type": "text", "text": "lone"}, "lone"),
        ({"type": "computer_screenshot", "image_url": "data:secret"}, ""),
        ([{"type": "text"}, {"type": "text", "text": 5}], ""),
    ],
)
def test_a_result_that_is_no_text_is_compact_json(api: str, content: Any, wanted: str) -> None:
    [said] = read(api, result(api, content))
    assert said.results == (wanted,)


def test_an_image_in_a_result_is_left_out(api: str) -> None:
    [said] = read(api, result(api, [*parts(api, TOOL, ["seen"]), IMAGES[api]]))
    assert said.results == ("seen",)
    [said] = read(api, result(api, [IMAGES[api]]))
    assert said.results == ("",)


def test_a_result_without_content_is_empty(api: str) -> None:
    whole = result(api, "x")
    holder = whole["content"][0] if api == "messages" else whole
    del holder["output" if api == "responses" else "content"]
    [said] = read(api, whole)
    assert (said.answers, said.results) == (("c1",), ("",))


@pytest.mark.parametrize("identity", [None, "", 5, ["c"], {"a": 1}])
def test_a_result_of_no_call_is_none(api: str, identity: Any) -> None:
    for said in read(api, result(api, "x", identity, is_error=True)):
        assert len(said.results) == len(said.answers)
        assert said.failed <= set(said.answers)


@pytest.mark.parametrize(
    ("is_error", "failed"), [(True, True), (False, False), (None, False), ("false", False), (1, False), ([], False)]
)
def test_only_a_result_that_says_so_is_an_error(is_error: Any, failed: bool) -> None:
    [said] = read("messages", result("messages", "no such order", is_error=is_error))
    assert said.failed == ({"c1"} if failed else set())
    assert said.results == ("no such order",)


@pytest.mark.parametrize("status", ["incomplete", "completed", "failed", None])
def test_a_status_is_no_error(status: Any) -> None:
    [said] = read("responses", result("responses", "x", status=status))
    assert (said.results, said.failed) == (("x",), frozenset())


def test_results_of_other_calls_are_read_too() -> None:
    for kind in ("custom_tool_call_output", "local_shell_call_output", "apply_patch_call_output"):
        [said] = read("responses", {"type": kind, "call_id": "c1", "output": "done"})
        assert said.results == ("done",)
    [said] = read("responses", {"type": "shell_call_output", "call_id": "c1", "output": [{"stdout": "ok\n"}]})
    assert said.results == ('[{"stdout":"ok\\n"}]',)


def test_each_result_of_a_message_stands_in_one_of_its_own_and_the_text_beside_them_in_the_last() -> None:
    content = [
        {"type": "text", "text": "first"},
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "2"}], "is_error": True},
        {"type": "text", "text": "last"},
    ]
    said = read("messages", {"role": "user", "content": content})
    assert [(one.role, one.answers, one.results, set(one.failed), one.text) for one in said] == [
        (TOOL, ("a",), ("1",), set(), ""),
        (TOOL, ("b",), ("2",), {"b"}, "first\nlast"),
    ]


# Whatever is sent


@given(message=values | st.dictionaries(st.sampled_from(["role", "type", "content", "output", "call_id"]), values))
@slow_is_fine
def test_no_message_makes_a_reader_raise(api: str, message: Any) -> None:
    for said in read(api, message):
        assert isinstance(said.text, str)
        assert len(said.results) == len(said.answers)
        assert all(isinstance(text, str) for text in said.results)
        assert said.failed <= set(said.answers)


@given(content=values | st.lists(values | st.builds(lambda text: {"type": "text", "text": text}, values)))
@slow_is_fine
def test_no_content_makes_a_reader_raise(api: str, content: Any) -> None:
    for message in (
        result(api, content),
        {"role": "user", "content": content},
        {"role": "assistant", "content": content},
    ):
        for said in read(api, message):
            assert len(said.results) == len(said.answers)


@pytest.mark.parametrize("depth", [100, 900, 5_000])
def test_a_result_nested_deep_is_read_as_far_as_it_can_be(api: str, depth: int) -> None:
    text = "[" * depth + "]" * depth
    raw = json.dumps(result(api, "@")).replace('"@"', text).encode()
    memo = message_memo(lambda message: read(api, message))
    for said in memo(msgspec.Raw(raw)):
        assert all(text.startswith(one[:10]) for one in said.results)


# Comparisons


def test_texts_take_no_part_in_comparisons() -> None:
    plain = Said(TOOL, b"d", answers=("c",))
    full = replace(plain, text="x", results=("y",), failed=frozenset({"c"}))
    assert plain == full
    assert hash(plain) == hash(full)
    assert repr(plain) == repr(full)
    assert [one.name for one in fields(Said)][-3:] == ["text", "results", "failed"]


@given(texts=st.lists(st.text(max_size=5), min_size=1, max_size=3))
@slow_is_fine
def test_a_lone_part_and_its_text_stay_one_message(api: str, texts: list[str]) -> None:
    [one], [other] = (read(api, {"role": "user", "content": told}) for told in (texts[0], parts(api, USER, texts)))
    assert (one == other) == (len(texts) == 1)
    assert chain([one]) == chain([replace(one, text="", results=())])


# What is kept


@pytest.mark.parametrize("extra", [-1, 0, 1, KEPT_CHARS])
def test_a_long_text_is_kept_as_its_beginning_and_its_end(api: str, extra: int) -> None:
    half = KEPT_CHARS // 2
    text = "a" * half + "b" * extra + "c" * half if extra >= 0 else "a" * half + "c" * (half - 1)
    wanted = text if extra <= 0 else "a" * half + "\n" + "c" * half
    [said] = read(api, {"role": "user", "content": text})
    assert said.text == wanted
    assert read(api, result(api, text))[0].results == (wanted,)
    assert read(api, result(api, parts(api, TOOL, [text])))[0].results == (wanted,)
    assert len(read(api, result(api, {"x": text}))[0].results[0]) <= KEPT_CHARS + 1


def test_many_small_parts_are_cut_as_one_text(api: str) -> None:
    [said] = read(api, {"role": "user", "content": parts(api, USER, ["x" * 100] * 10_000)})
    assert len(said.text) == KEPT_CHARS + 1


def kept_bytes(said: tuple[Said, ...]) -> int:
    """The texts that remembered messages hold on to, a wide one with four bytes a letter."""
    return sum(len(text) * (1 if text.isascii() else 4) for one in said for text in (one.text, *one.results))


@pytest.mark.parametrize("letter", ["x", "\U0001f600"])
@pytest.mark.parametrize("as_result", [False, True])
def test_texts_stay_within_the_memory_allowed(api: str, letter: str, as_result: bool) -> None:
    memo = message_memo(lambda message: read(api, message))
    for number in range(300):
        text = f"{number}" + letter * 250_000
        message = result(api, text) if as_result else {"role": "user", "content": text}
        memo(msgspec.Raw(json.dumps(message, ensure_ascii=False).encode()))
    held = sum(kept_bytes(said) for said, _ in memo._known.values())
    assert held <= memo._held_bytes <= LIMIT_BYTES
    assert held > LIMIT_BYTES // 3, "a wide text weighs twice: it also keeps the bytes that its digest was made of"


def test_a_huge_result_weighs_what_is_kept_of_it(api: str) -> None:
    memo = message_memo(lambda message: read(api, message))
    memo(msgspec.Raw(json.dumps(result(api, "x" * 20_000_000)).encode()))
    assert KEPT_CHARS < memo._held_bytes < 2 * KEPT_CHARS


# What is said of the tools


def tool(api: str, name: str, **told: Any) -> dict[str, Any]:
    if api == "chat":
        return {"type": "function", "function": {"name": name, "parameters": {}, **told}}
    return {"type": "function", "name": name, ("parameters" if api == "responses" else "input_schema"): {}, **told}


def test_the_descriptions_of_tools_are_read_by_name(api: str) -> None:
    tools = [tool(api, "a", description="Finds orders."), tool(api, "b"), tool(api, "c", description="\U0001f600")]
    turn = APIS[api].read_request(body(api, [], tools=tools))
    assert turn.about == {"a": "Finds orders.", "c": "\U0001f600"}
    assert set(turn.tools) == {"a", "b", "c"}
    assert turn.tools == {"a": {}, "b": {}, "c": {}}


@pytest.mark.parametrize("description", [None, "", 5, ["x"], {"text": "x"}])
def test_a_description_that_is_no_text_is_none(api: str, description: Any) -> None:
    told = [tool(api, "a", description="old"), tool(api, "a", description=description)]
    assert APIS[api].read_request(body(api, [], tools=told)).about == {}


def test_what_is_said_of_tools_is_read_once(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = body(api, [], tools=[tool(api, "once", description=f"in {api}")])
    first = APIS[api].read_request(raw).about
    monkeypatch.setattr(request, "parsed", lambda raw: pytest.fail("read again"))
    assert APIS[api].read_request(raw.replace(b'"m"', b'"n"')).about is first


@given(tools=values | st.lists(values))
@slow_is_fine
def test_no_tools_make_a_reader_raise(api: str, tools: Any) -> None:
    turn = APIS[api].read_request(body(api, [], tools=tools))
    assert set(turn.about) <= set(turn.tools)


def test_no_tools_say_nothing(api: str) -> None:
    assert APIS[api].read_request(body(api, [])).about == {}


def test_a_thread_whose_requests_leave_the_tools_out_keeps_what_was_said_of_them() -> None:
    index = TrajectoryIndex()
    asked = [{"role": "user", "content": "hello"}]
    tools = [tool("messages", "a", description="Finds orders.")]
    opened = messages.read_request(body("messages", asked, tools=tools, thread={"type": "new"}))
    first = index.place(opened, tenant="t", session=None, retry=False)
    first.turn.answer = Relayed([], answered=True)
    index.name(first.turn, "t", "answer msg_1")
    goes_on = messages.read_request(body("messages", asked, thread={"previous_message_id": "msg_1"}))
    second = index.place(goes_on, tenant="t", session=None, retry=False)
    assert goes_on.about == {}
    assert first.about == second.about == {"a": "Finds orders."}
    assert second.tools == {"a": {}}
    assert [said.text for said in second.history] == ["hello", "", "hello"]


# How many calls an answer may make


@pytest.mark.parametrize(
    ("api", "asked", "one_call"),
    [
        ("chat", {}, False),
        ("chat", {"parallel_tool_calls": False}, True),
        ("chat", {"parallel_tool_calls": True}, False),
        ("chat", {"parallel_tool_calls": None}, False),
        ("chat", {"parallel_tool_calls": "no"}, False),
        ("responses", {"parallel_tool_calls": False}, True),
        ("responses", {"parallel_tool_calls": True}, False),
        ("messages", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, True),
        ("messages", {"tool_choice": {"type": "auto"}}, False),
        ("messages", {"tool_choice": "auto"}, False),
    ],
)
def test_a_request_may_ask_for_one_call_at_most(api: str, asked: dict[str, Any], one_call: bool) -> None:
    assert APIS[api].read_request(body(api, [], **asked)).one_call == one_call
