"""What memory has learnt, as people are told it."""

from __future__ import annotations

import json

from agentspec.calls import ToolCall
from agentspec.memory.in_words import in_words
from agentspec.memory.recall import Recall
from agentspec.recollection import Past
from agentspec.trajectory import ASSISTANT, TOOL, USER, Said


def talk(name: str, order: str, parcel: str, *, tracks: bool) -> Past:
    """The user names an order; it is looked up, and perhaps its parcel tracked."""
    said = [
        Said(USER, f"{name}u".encode(), text=f"where is {order}?"),
        Said(ASSISTANT, f"{name}1".encode(), (ToolCall("get_order", {"id": order}, "1"),), frozenset({"1"})),
        Said(TOOL, f"{name}r".encode(), answers=("1",), results=(json.dumps({"parcel": parcel}),)),
    ]
    if tracks:
        made = ToolCall("track", {"parcel": parcel, "way": "fast"}, "2")
        said.append(Said(ASSISTANT, f"{name}2".encode(), (made,), frozenset({"2"})))
    else:
        said.append(Said(ASSISTANT, f"{name}3".encode(), text="It is on its way."))
    return Past(name, "anna", tuple(said))


def test_habits_origins_and_counts_are_told() -> None:
    memory = Recall()
    for nth in range(4):
        memory.learn(talk(f"t{nth}", f"4{nth}17", f"PX{nth}1", tracks=nth < 3))
    learnt = in_words(memory)
    assert learnt.trajectories == 4
    after = {habit.after: habit for habit in learnt.habits}
    first = after["get_order answered"].next
    assert [one.tool for one in first] == ["track", ""]
    assert 0.6 < first[0].share < 0.9
    assert after["the user spoke"].next[0].tool == "get_order"
    origins = {(one.tool, one.argument): one for one in learnt.origins}
    assert origins["track", "parcel"].copied_share == 1.0
    assert origins["track", "way"].copied_share < 0.5


def test_no_value_is_told() -> None:
    memory = Recall()
    memory.learn(talk("t", "hush-4417", "hush-PX31", tracks=True))
    assert "hush" not in repr(in_words(memory))


def test_an_empty_memory_has_nothing_to_tell() -> None:
    learnt = in_words(Recall())
    assert (learnt.trajectories, learnt.habits, learnt.origins, learnt.mistakes) == (0, (), (), ())


def test_only_so_much_is_told() -> None:
    memory = Recall()
    memory.learn(talk("t", "4417", "PX31", tracks=True))
    assert len(in_words(memory, most=1).habits) == 1
