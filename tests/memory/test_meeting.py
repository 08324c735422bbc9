"""How well a tool's words meet what was said: by rank among the tools, and nothing where nothing is known."""

from __future__ import annotations

import numpy as np

from agentspec.memory.context import Context
from agentspec.memory.meeting import MARKS, Meeting, Meetings, stem
from agentspec.wire.request import Offered
from tests.memory.talks import Talk

TOOLS = {
    "cancel_order": {"properties": {"order_id": {"description": "which order"}}},
    "get_weather": {"properties": {"city": {"description": "a town"}}},
    "send_mail": {},
}


def heard(text: str) -> Context:
    context = Context()
    context.sync(Talk().user(text).history)
    return context


def test_the_tool_whose_name_was_said_does_best() -> None:
    meeting = Meeting(TOOLS, {})
    scores = meeting.scores(["please", "cancel", "my", "orders"])[0]
    assert int(scores.argmax()) == 0 and scores[1] == scores[2] == 0


def test_what_is_told_of_a_tool_meets_what_was_said() -> None:
    meeting = Meeting(TOOLS, {"get_weather": "The forecast: rain, sunshine and wind."})
    assert int(meeting.scores(["will", "it", "rain"])[1].argmax()) == 1
    assert int(meeting.scores(["a", "town"])[1].argmax()) == 1


def test_a_tool_that_is_not_listed_has_marks_of_its_own() -> None:
    marks = Meeting(TOOLS, {}).marks(heard("cancel my order"), ["", *TOOLS])
    assert marks.shape == (4, MARKS)
    assert len({tuple(row) for row in marks.tolist()}) >= 3
    assert not np.any(np.all(marks[1:] == marks[0], axis=1))


def test_without_tools_nothing_is_met() -> None:
    assert Meeting({}, {}).marks(heard("hello"), ["", "f"]).shape == (2, MARKS)


def test_a_request_s_own_table_is_read_once_and_its_descriptions_count() -> None:
    offered = Offered()
    offered.update(TOOLS)
    offered.about = {"send_mail": "Write to a customer."}
    meetings = Meetings()
    first = meetings.of(offered)
    assert meetings.of(offered) is first
    assert int(first.scores(["write", "customer"])[1].argmax()) == 2
    assert all(meetings.of({name: {}}).names == {name: 0} for name in map(str, range(200)))


def test_a_stem_has_no_plural() -> None:
    assert stem("orders") == stem("order") and len(stem("reservation")) == 5
