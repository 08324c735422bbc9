"""What the model is told, and what it is asked.

A model this small plans only when it has seen it done: worked examples come first in every conversation. They are plain
messages, in the form in which this model writes a call by itself (bare JSON on a line of its own).

Examples and questions were chosen together, such that the default model (0.5B) answers all of them right. They show
what agentspec does to the time of a run, not how good the model is: asked about other orders, it at times skips the
second call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

SYSTEM = (
    "You help the staff of a shop for hiking gear. "
    'First write one sentence that starts with "Plan:", then call one tool. '
    "When you have the result, answer in one short sentence."
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and a text that a right answer contains."""

    text: str
    fact: str

    def answered_by(self, answer: str) -> bool:
        return self.fact.lower() in answer.lower()


@dataclass(frozen=True, slots=True)
class _Step:
    """One call of a worked example."""

    plan: str
    tool: str
    arguments: dict[str, str]
    result: dict[str, Any]

    def messages(self) -> list[Message]:
        call = json.dumps({"name": self.tool, "arguments": self.arguments})
        return [
            {"role": "assistant", "content": f"Plan: {self.plan}\n{call}"},
            {"role": "user", "content": f"<tool_response>\n{json.dumps(self.result)}\n</tool_response>"},
        ]


def _example(question: str, *steps: _Step, answer: str) -> list[Message]:
    said = [message for step in steps for message in step.messages()]
    return [{"role": "user", "content": question}, *said, {"role": "assistant", "content": answer}]


_EXAMPLES = [
    *_example(
        "Where is order 4402?",
        _Step(
            "this is about an order, and nobody but the order list knows which parcel an order went into, "
            "so the first thing to do is to look up order 4402 with the tool order.",
            "order",
            {"number": "4402"},
            {"number": "4402", "item": "boots", "status": "sent", "parcel": "PX12"},
        ),
        _Step(
            "the order went into parcel PX12, and nobody but the carrier knows where a parcel is right now, "
            "so the next thing to do is to look up parcel PX12 with the tool track.",
            "track",
            {"parcel": "PX12"},
            {"parcel": "PX12", "place": "Turin", "due": "Tuesday"},
        ),
        answer="It is in Turin and arrives on Tuesday.",
    ),
    *_example(
        "How many lamps are left?",
        _Step(
            "this is about pieces on our shelves, and nobody but the stock list counts them every day, "
            "so the first thing to do is to look up the item lamp with the tool stock.",
            "stock",
            {"item": "lamp"},
            {"item": "lamp", "pieces": 12},
        ),
        answer="12 lamps are left.",
    ),
    *_example(
        "What do we charge for gift wrapping?",
        _Step(
            "this is about a rule of the shop, and nothing but the handbook has a page for each rule, "
            "so the first thing to do is to look up the page wrapping with the tool handbook.",
            "handbook",
            {"topic": "wrapping"},
            {"page": "wrapping", "text": "Gift wrapping costs 4 euros."},
        ),
        answer="It costs 4 euros.",
    ),
    *_example(
        "Where is parcel PX20?",
        _Step(
            "this is about a parcel on its way, and nobody but the carrier knows where a parcel is right now, "
            "so the first thing to do is to look up parcel PX20 with the tool track.",
            "track",
            {"parcel": "PX20"},
            {"parcel": "PX20", "place": "Berlin", "due": "Sunday"},
        ),
        answer="It is in Berlin and arrives on Sunday.",
    ),
]

WARM_UP = Question("How many kettles are left?", "9")

QUESTIONS = (
    Question("How many stoves are left?", "23"),
    Question("Where is parcel PX83?", "Lyon"),
    Question("What is the rule for returns?", "45 days"),
    Question("Where is order 4420?", "Geneva"),
    Question("When is shipping free?", "80 euros"),
    Question("When does parcel PX64 arrive?", "Thursday"),
)


def conversation(question: str) -> list[Message]:
    """The messages of a new conversation."""
    return [{"role": "system", "content": SYSTEM}, *_EXAMPLES, {"role": "user", "content": question}]
