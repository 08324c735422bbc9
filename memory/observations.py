"""Results seen before, to look further ahead with: what a call would most likely answer. Never served to an agent."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from agentspec.calls import ToolCall
from agentspec.memory.table import key_of

MAX_RESULTS = 20_000
MAX_CHARS = 16_384
MAX_CHARS_TOGETHER = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Observed:
    """The last result of a call, and the version of what it read."""

    text: str
    version: str


class Observations:
    """Last results by scope, call and version of what the tool reads."""

    def __init__(self) -> None:
        self.results: OrderedDict[tuple[str, str], Observed] = OrderedDict()
        self._chars = 0

    def learn(self, scope: str, call: ToolCall, result: str, version: str = "") -> None:
        """This call had this result while what it reads stood at this version."""
        if len(result) > MAX_CHARS:
            return
        key = (scope, key_of(call))
        known = self.results.get(key)
        self._chars += len(result) - (len(known.text) if known is not None else 0)
        self.results[key] = Observed(result, version)
        self.results.move_to_end(key)
        while len(self.results) > MAX_RESULTS or self._chars > MAX_CHARS_TOGETHER:
            _, oldest = self.results.popitem(last=False)
            self._chars -= len(oldest.text)

    def put(self, key: tuple[str, str], observed: Observed) -> None:
        """Take over what was observed elsewhere."""
        self.results[key] = observed
        self._chars += len(observed.text)

    def expected(self, scope: str, call: ToolCall, version: str = "") -> str | None:
        """The likeliest result; None where none was seen, or what the tool reads has changed since."""
        known = self.results.get((scope, key_of(call)))
        return known.text if known is not None and known.version == version else None
