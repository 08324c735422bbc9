"""A shop with state to read and to write, for the tests on stale results."""

from __future__ import annotations

from typing import Any

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.scripted import Gate, Step, call, calls_end, say

SERVED = ("hit", "joined")
GUESS = ToolCall("get_order", {"order_id": "A1"})
CANCEL, GET = ("cancel", {"order_id": "A1"}), ("get_order", GUESS.arguments)


class Shop:
    """A piece of state, a read of it, and writes."""

    def __init__(self, stable_for: float = 30.0) -> None:
        self.state = "open"
        self.runs = 0
        self.ran, self.added = Gate(), Gate()
        self.writing, self.may_end = Gate(), Gate()
        self.may_end.open()

        @speculate(effect="read", reads={"orders"}, stable_for=stable_for)
        def get_order(order_id: str) -> str:
            self.runs += 1
            seen = f"{order_id} {self.state}"
            self.ran.open()
            return seen

        @speculate(effect="pure")
        def add(a: int, b: int) -> int:
            self.runs += 1
            self.added.open()
            return a + b

        @speculate(effect="write", writes={"orders"})
        def close_order(order_id: str) -> str:
            self.writing.open()
            self.may_end.wait()
            self.state = "closed"
            return "ok"

        @speculate(effect="write", writes={"mail"})
        def send_mail(order_id: str) -> str:
            return "sent"

        @speculate(effect="irreversible")
        def launch(order_id: str) -> str:
            self.state = "gone"
            return "launched"

        self.get_order, self.add = get_order, add
        self.close_order, self.send_mail, self.launch = close_order, send_mail, launch

    def cancel(self, order_id: str) -> str:
        """A write that nobody declared."""
        self.state = "cancelled"
        return "ok"


def both(first: tuple[str, Any], second: tuple[str, Any], after: Gate) -> list[Step]:
    """One answer with two parallel calls, `(name, arguments)` each."""
    one, two = (call(n, a, f"call_{i}", i) for i, (n, a) in enumerate((first, second)))
    return [say("x"), after, *one, *two, *calls_end()]
