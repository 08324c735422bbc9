"""Conversations of a shop's agent, as recordings; and what is guessed in each of their turns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentspec.calls import ToolCall

THINKS = (
    "The customer wants to know where the order is. I should look the order up first, see whether it was sent, and "
    "only then ask the carrier; guessing a parcel number would be wrong. The number of the order is in the message."
)
TRACKS = "The order was sent with a parcel. The carrier knows where that is, so I ask for the parcel by its number now."

Step = dict[str, Any]
Guess = tuple[str, dict[str, Any], float]


def user(text: str) -> Step:
    return {"role": "user", "content": text}


def asks(name: str, reasoning: str = THINKS, **arguments: Any) -> Step:
    return {"role": "assistant", "reasoning": reasoning, "tool_calls": [{"name": name, "arguments": arguments}]}


def told(result: Any) -> Step:
    return {"role": "tool", "tool_result": json.dumps(result)}


def says(text: str) -> Step:
    return {"role": "assistant", "content": text}


@dataclass(frozen=True)
class Talk:
    """A recorded conversation. `guesses`: by turn, the calls that are guessed at its start, with a confidence."""

    session: str
    steps: tuple[Step, ...]
    guesses: tuple[tuple[Guess, ...], ...] = ()

    def of(self, turn: int) -> list[tuple[ToolCall, float]]:
        """What is guessed in this turn, counted from 0."""
        found = self.guesses[turn] if turn < len(self.guesses) else ()
        return [(ToolCall(name, arguments), confidence) for name, arguments, confidence in found]


def where_is(session: str, number: str, parcel: str, *more: Guess) -> Talk:
    """The usual talk: look the order up, track its parcel, tell."""
    order, where = {"order_id": number}, {"parcel": parcel}
    return Talk(
        session,
        (
            user(f"Where is my order {number}?"),
            asks("get_order", **order),
            told({"order": number, "status": "sent", "parcel": parcel}),
            asks("track_parcel", TRACKS, **where),
            told({"parcel": parcel, "place": "Turin"}),
            says(f"Your order {number} is in Turin and comes on Tuesday."),
        ),
        ((("get_order", order, 0.97), *more), (("track_parcel", where, 0.97),)),
    )


WRITES = "cancel-4458"
"""The talk that writes: what others of its runtime have read meanwhile is stale."""
WRONG: Guess = ("get_order", {"order_id": "4471"}, 0.7)
MAIN = where_is("order-4417", "4417", "PX31", WRONG)
AFTER_ALL: Guess = ("quote", {"parcel": "PX58", "country": "CH"}, 0.9)
TALKS = [
    Talk(MAIN.session, MAIN.steps, (*MAIN.guesses, (AFTER_ALL,))),
    where_is("order-4420", "4420", "PX58"),
    where_is("order-4402", "4402", "PX12", ("send_mail", {"order_id": "4402"}, 0.9)),
    Talk(
        WRITES,
        (
            user("Please cancel order 4458."),
            asks("cancel_order", "The customer asks to cancel, plainly; I do that. " * 6, order_id="4458"),
            told({"order": "4458", "status": "cancelled"}),
            says("Order 4458 is cancelled."),
        ),
        ((("get_order", {"order_id": "4458"}, 0.9),),),
    ),
    Talk(
        "lost-parcel",
        (
            user("Where is parcel PX00?"),
            asks("track_parcel", TRACKS, parcel="PX00"),
            {"role": "tool", "tool_result": "Error: no parcel PX00"},
            says("Nobody knows that parcel."),
        ),
        ((("track_parcel", {"parcel": "PX00"}, 0.95),),),
    ),
    Talk(
        "changed-mind",
        (
            user("Look up order 4433."),
            asks("get_order", order_id="4433"),
            user("No, leave it, thank you."),
            says("As you like."),
        ),
        ((("get_order", {"order_id": "4433"}, 0.95),),),
    ),
    Talk(
        "is-it-open",
        (user("Is the shop in Geneva open today?"), says("It is open until six. " * 8)),
        ((("search_web", {"words": "shop Geneva opening hours"}, 0.95), ("get_order", {"order_id": "1"}, 0.02)),),
    ),
]


def write(folder: Path, talks: list[Talk]) -> Path:
    """The talks as a file of recordings; a talk's session is the model's name."""
    file = folder / "talks.jsonl"
    lines = [{"source": "made here", "task_id": talk.session, "steps": list(talk.steps)} for talk in talks]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file
