"""The simplest memory: what came most often after the last call.

Argument values are recalled only within a scope (the end user's, or by default the trajectory); scopes never meet.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Hashable, Sequence

from agentspec.calls import ToolCall, canonical_json
from agentspec.protocols import Candidate

_MAX_CONTEXTS = 50_000
_MAX_CALLS = 200
"""Different next calls kept for one context; the rarest half is forgotten first."""


class LastCalls:
    """Counts of next calls, given the last call exactly, or only its name. In memory, bounded."""

    def __init__(self) -> None:
        self._counts: OrderedDict[Hashable, Counter[str | None]] = OrderedDict()

    def candidates(self, scope: str, history: Sequence[ToolCall]) -> list[Candidate]:
        for context in _contexts(scope, history):
            counts = self._counts.get(context)
            if counts:
                total = sum(counts.values())
                return [
                    Candidate(_call(key), n / (total + 1), n) for key, n in counts.most_common(3) if key is not None
                ]
        return []

    def learn(self, scope: str, history: Sequence[ToolCall], call: ToolCall | None) -> None:
        for context in _contexts(scope, history):
            counts = self._counts.setdefault(context, Counter())
            counts[None if call is None else _key(call)] += 1
            if len(counts) > _MAX_CALLS:
                self._counts[context] = Counter(dict(counts.most_common(_MAX_CALLS // 2)))
            self._counts.move_to_end(context)
        while len(self._counts) > _MAX_CONTEXTS:
            self._counts.popitem(last=False)


def _contexts(scope: str, history: Sequence[ToolCall]) -> list[Hashable]:
    if not history:
        return [(scope, "start")]
    return [(scope, "call", _key(history[-1])), (scope, "name", history[-1].name)]


def _key(call: ToolCall) -> str:
    return canonical_json([call.name, call.arguments])


def _call(key: str) -> ToolCall:
    name, arguments = json.loads(key)
    return ToolCall(name, arguments)
