"""The grid: what a cell is, and what was measured in one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agentspec.proxy.bench.agent import synthetic
from agentspec.proxy.bench.agent.virtual_agent import Called

TOOL_S = (0.05, 0.5, 3.0)
REASONING_TOKENS = (20, 200, 1000)
PROBE_S = (0.1, 1.0, 4.0)
AGENTS = (1, 16)
CORES = 2
DECLARED = 0.3
COUNTS_FROM = 0.05
"""What could be saved is looked at where it is more than this share of the run."""


class Hits(StrEnum):
    """Who predicts in a cell."""

    NONE = "hits_0"
    DECLARED = "declared_30"
    RECALL = "recall"
    ORACLE = "oracle"


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the grid."""

    tool_s: float
    reasoning_tokens: int
    hits: Hits
    probe_s: float
    agents: int

    @property
    def name(self) -> str:
        """How it is called in reports."""
        shape = f"tool_{self.tool_s * 1000:.0f}ms.reasoning_{self.reasoning_tokens}"
        return f"{shape}.{self.hits}.probe_{self.probe_s * 1000:.0f}ms.agents_{self.agents}"

    @property
    def distinct(self) -> Cell:
        """The cell whose run is also this one's: memory does not probe, so for it all probe times are one."""
        return replace(self, probe_s=PROBE_S[0]) if self.hits is Hits.RECALL else self


def grid() -> Iterator[Cell]:
    """All cells."""
    for cell in itertools.product(TOOL_S, REASONING_TOKENS, Hits, PROBE_S, AGENTS):
        yield Cell(*cell)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a cell came to. Seconds are those of all tasks, one after the other.

    Attributes:
        could_save_s: the sum of min(L, max(0, R - P)) over the calls that may run ahead, where right predictions come
            after P; R as the direct arm had it.
        differences: answers and tool results that were not the recorded ones.
        outcomes: the proxy's bets, by what became of them.
    """

    cell: Cell
    off_s: float
    on_s: float
    could_save_s: float
    differences: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Time with agentspec over time without."""
        return self.on_s / self.off_s

    @property
    def captured(self) -> float | None:
        """Share of what could be saved that was; None where that is not worth looking at, or nobody is always right."""
        if self.cell.hits is not Hits.ORACLE or self.could_save_s <= COUNTS_FROM * self.off_s:
            return None
        return (self.off_s - self.on_s) / self.could_save_s


def could_save_s(called: Called, tool_s: float, probe_s: float) -> float:
    """What a right prediction after `probe_s` saves of this call at best."""
    if not synthetic.EFFECTS[called.tool].changes_nothing:
        return 0.0
    return min(tool_s, max(0.0, called.runway_s - probe_s))
