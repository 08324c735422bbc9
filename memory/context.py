"""One trajectory as memory reads it: what was done and said, and every value that a next argument may be copied from.

It only grows: each message, and each call of a running answer, is read once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from agentspec.calls import ToolCall
from agentspec.memory.reading import SCALAR, Found, json_values, parsed_json, text_values
from agentspec.memory.slots import form_of
from agentspec.memory.table import ARGUMENT, OWN_TEXT, RESULT, RESULT_TEXT, USER_TEXT, Table, key_of
from agentspec.trajectory import ASSISTANT, SYSTEM, TOOL, USER, Said, same_calls

MAX_STEMS = 120
MAX_RESULT_STEMS = 40
MAX_FACTS = 24

_STEM = re.compile(r"[a-z]{3,}|\d+")
_ERROR = re.compile(r"\b(error|exception|traceback|not found|invalid|failed|denied|cannot|unable)\b", re.IGNORECASE)


_GROWING = (
    "emitted", "actions", "calls", "keys", "made", "results", "calls_by_name", "since_user", "last_record",
    "_digests", "_waiting", "_places",
)  # fmt: skip
"""What a fork must not share; `slots_used` is copied deeper, all else is replaced and never changed."""


class Context:
    """What is known at one point of a trajectory."""

    def __init__(self, *, outline: bool = False) -> None:
        self._outline = outline
        """Only what was done and what the user said is read, not the values in texts and results."""
        self.table = Table()
        self.emitted: list[ToolCall] = []
        """Calls of the running answer."""
        self.actions: list[str] = ["^"]
        """`tool:status` of calls with their results, `tool+` without, U and A where user and agent spoke."""
        self.calls: list[ToolCall] = []
        self.keys: list[str] = []
        """Of the calls, by `key_of`."""
        self.made: set[str] = set()
        self.results: list[str | None] = []
        self.calls_by_name: Counter[str] = Counter()
        self.since_user: list[str] = []
        """Tools called since the user spoke."""
        self.slots_used: dict[str, list[int]] = {}
        """By `tool.argument`: numbers of the values that it had, in order."""
        self.last_record: dict[str, int] = {}
        """By tool: the record that most arguments of its last call stood in."""
        self.user_words: list[str] = []
        self.own_words: list[str] = []
        self.result_words: list[str] = []
        self.facts: list[str] = []
        """Short fields of the last result."""
        self.fresh_from = 0
        """Messages from here on are newer than the agent's last."""
        self.words_from = 0
        """Plain words of texts before this message are not looked at: it is the user's last but one."""
        self._digests: list[bytes] = []
        self._heard_at = 0
        self._waiting: dict[str, int] = {}
        self._places: list[int] = []

    @property
    def message(self) -> int:
        """Messages read so far."""
        return self.table.message

    @property
    def heard(self) -> bool:
        """Whether the user has spoken."""
        return self._heard_at > 0

    @property
    def last_call(self) -> str:
        """The name of the last tool that was called."""
        return self.calls[-1].name if self.calls else ""

    # Growing

    def fork(self) -> Context:
        """The same up to here, to be grown on its own."""
        other = copy(self)
        other.table = self.table.fork()
        other.slots_used = {slot: list(numbers) for slot, numbers in self.slots_used.items()}
        for name in _GROWING:
            setattr(other, name, copy(getattr(self, name)))
        return other

    def sync(self, history: Sequence[Said], emitted: Sequence[ToolCall] = ()) -> bool:
        """Read what is new. False if this is not the trajectory that was read before: begin another context."""
        known = len(self._digests)
        if not self.goes_on_as(history) or not self._goes_on(history[known:], emitted):
            return False
        for said in history[known:]:
            self.read(said)
        self.emit(emitted[len(self.emitted) :])
        return True

    def emit(self, calls: Sequence[ToolCall]) -> None:
        """The running answer has made these calls too."""
        self.table.message += 1  # theirs is the next one
        for call in calls:
            self.emitted.append(call)
            self._call(call)
        self.table.message -= 1

    def goes_on_as(self, history: Sequence[Said]) -> bool:
        """Whether this history begins with what was read."""
        return [said.digest for said in history[: len(self._digests)]] == self._digests

    def _goes_on(self, new: Sequence[Said], emitted: Sequence[ToolCall]) -> bool:
        """Whether the calls that were read of the running answer are still its first ones."""
        made = new[0].calls if new and new[0].role == ASSISTANT else () if new else emitted
        return same_calls(made[: len(self.emitted)], self.emitted)

    def read(self, said: Said) -> None:
        """Take in one message."""
        self._digests.append(said.digest)
        self.table.message += 1
        if said.role == USER:
            self._user(said.text)
        elif said.role == ASSISTANT:
            self._assistant(said)
        elif said.role == TOOL:
            for identity, text in zip(said.answers, said.results, strict=False):
                self._result(identity, text, failed=identity in said.failed)
        elif said.role == SYSTEM:
            self.table.see_year(said.text)

    def _user(self, text: str) -> None:
        if self.actions[-1] != "U":
            self.fresh_from = self.message
        self.words_from, self._heard_at = self._heard_at, self.message
        self.actions.append("U")
        self.since_user = []
        self.user_words = _stems(text, MAX_STEMS)
        self.table.see_year(text)
        self.table.hear(text, user=True)
        self._add_text(text, "user", USER_TEXT)

    def _assistant(self, said: Said) -> None:
        if said.text:
            self.own_words = _stems(said.text, MAX_STEMS)
            self.table.hear(said.text, user=False)
            self._add_text(said.text, "agent", OWN_TEXT)
        if not said.makes_calls:
            self.actions.append("A")
        first = len(self.calls) - len(self.emitted)
        for place, call in enumerate(said.calls[: len(self.emitted)], first):
            if call.id:
                self._waiting[call.id] = place
        for call in said.calls[len(self.emitted) :]:
            self._call(call)
        self.emitted = []
        self.fresh_from = self.message + 1

    def _call(self, call: ToolCall) -> None:
        if call.id:
            self._waiting[call.id] = len(self.calls)
        self._note_record(call)
        self.calls.append(call)
        self.keys.append(key_of(call))
        self.made.add(self.keys[-1])
        self.results.append(None)
        self._places.append(len(self.actions))
        self.actions.append(call.name + "+")
        self.since_user.append(call.name)
        self.calls_by_name[call.name] += 1
        base = self.table.records
        for name, value in call.arguments.items():
            path, form = f"{call.name}.{name}", form_of(value)
            self._use(value, path)
            self.table.add(Found(value, "@" + path, name, call.name, 1, form), ARGUMENT, base)
            if form != SCALAR:
                for found in json_values(value, path):
                    self._use(found.value, found.path)
        self.table.records = base + 1

    def went_well(self, identity: str) -> None:
        """A call had a result that is no error; what it says is not known."""
        place = self._waiting.get(identity)
        if place is not None:
            self.actions[self._places[place]] = f"{self.calls[place].name}:ok"
        self.result_words, self.facts = [], []

    def _result_values(self, text: str, parsed: Any, tool: str) -> Iterator[Found]:
        """JSON by its leaves, anything else by its words."""
        if self._outline:
            return iter(())
        return text_values(text, tool) if parsed is None else json_values(parsed, tool)

    def _add_text(self, text: str, path: str, kind: int) -> None:
        for found in () if self._outline else text_values(text, path):
            self.table.add(found, kind, 0)

    def _use(self, value: Any, slot: str) -> None:
        number = self.table.number(value)
        self.table.used.array[number] += 1
        self.slots_used.setdefault(slot, []).append(number)

    def _note_record(self, call: ToolCall) -> None:
        counts = Counter(record for value in call.arguments.values() for record in self.table.records_of(value))
        if counts:
            last = self.last_record.get(call.name, 0)
            self.last_record[call.name] = max(counts, key=lambda one: (counts[one], one > last, -abs(one - last)))

    def _result(self, identity: str, text: str, *, failed: bool) -> None:
        place = self._waiting.get(identity)
        tool = self.calls[place].name if place is not None else "?"
        if place is not None:
            self.results[place] = text
            self.actions[self._places[place]] = f"{tool}:{_status(text, failed)}"
        self.result_words = _stems(text[:400], MAX_RESULT_STEMS)
        self.table.see_year(text)
        self.facts = []
        parsed = None if self._outline else parsed_json(text)
        base, kind = self.table.records, RESULT if isinstance(parsed, (dict, list)) else RESULT_TEXT
        for found in self._result_values(text, parsed, tool):
            self.table.add(found, kind, base)
            if kind == RESULT and len(self.facts) < MAX_FACTS and _is_fact(found.value):
                self.facts.append(f"f {found.path} {found.value}")


def _stems(text: str, most: int) -> list[str]:
    return [word[:6] for word in _STEM.findall(text.lower())][:most]


def _status(text: str, failed: bool) -> str:
    if failed or _ERROR.search(text[:120]):
        return "error"
    return "empty" if text.strip() in ("", "[]", "{}", "null", "None") else "ok"


def _is_fact(value: Any) -> bool:
    if isinstance(value, bool):
        return True
    return isinstance(value, str) and 0 < len(value) <= 20 and value.replace("_", "").isalpha()
