"""Trajectories in the making, for tests of memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from agentspec.calls import ToolCall
from agentspec.recollection import Past, Question
from agentspec.trajectory import Said, meaning_digest
from agentspec.wire.request import Schemas


class Talk:
    """A trajectory in the making."""

    def __init__(self, trajectory: str = "t", scope: str | None = None, tools: Schemas | None = None) -> None:
        self.trajectory, self.scope = trajectory, trajectory if scope is None else scope
        self.tools = tools or {}
        self.history: list[Said] = []

    def user(self, text: str) -> Talk:
        self.history.append(Said("user", meaning_digest(["user", text]), text=text))
        return self

    def says(self, text: str) -> Talk:
        self.history.append(Said("assistant", meaning_digest(["assistant", text]), text=text))
        return self

    def asks(self, *calls: tuple[str, Mapping[str, Any]], text: str = "") -> list[str]:
        """The agent makes these calls; their ids."""
        made = tuple(ToolCall(name, dict(given), f"c{len(self.history)}.{i}") for i, (name, given) in enumerate(calls))
        meaning = meaning_digest(["assistant", text, [[call.name, repr(call.arguments)] for call in made]])
        ids = [str(call.id) for call in made]
        self.history.append(Said("assistant", meaning, made, frozenset(ids), text=text))
        return ids

    def gets(self, results: Mapping[str, Any], failed: Sequence[str] = ()) -> Talk:
        """Results by the calls' ids; what is no text comes as JSON."""
        texts = tuple(one if isinstance(one, str) else json.dumps(one) for one in results.values())
        meaning = meaning_digest(["tool", list(texts), sorted(failed)])
        self.history.append(Said("tool", meaning, answers=tuple(results), results=texts, failed=frozenset(failed)))
        return self

    def call(self, name: str, result: Any = "ok", /, **given: Any) -> Talk:
        """One call and its result."""
        return self.gets({self.asks((name, given))[0]: result})

    def past(self, outcome: float | None = None) -> Past:
        return Past(self.trajectory, self.scope, tuple(self.history), self.tools, outcome)

    def question(self, emitted: Sequence[ToolCall] = ()) -> Question:
        return Question(self.trajectory, self.scope, tuple(self.history), self.tools, emitted)


words = st.sampled_from(["Anna Berg", "order #W12", "on May 3rd", "2024-05-03", "$1,200.50", "done", "é\ud800", ""])
values = st.one_of(st.integers(0, 9), st.booleans(), words, st.lists(words, max_size=2), st.just({"id": "A1", "n": 2}))
some_calls = st.lists(
    st.tuples(st.sampled_from("fgh"), st.dictionaries(st.sampled_from(["id", "x"]), values, max_size=2)),
    min_size=1,
    max_size=3,
)


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    talk = Talk()
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["user", "says", "calls", "calls"]))
        if kind == "user":
            talk.user(draw(words))
        elif kind == "says":
            talk.says(draw(words))
        else:
            ids = draw(st.permutations(talk.asks(*draw(some_calls), text=draw(words))))
            answered = ids[: draw(st.integers(0, len(ids)))]
            talk.gets({identity: draw(values) for identity in answered}, [one for one in ids if draw(st.booleans())])
    return talk
