"""The serial ghost of a run: how long it would have taken one after the other.

It makes the same calls at the same moments of each turn; a call that got the result of a run ahead takes as long as
that run took, and all that comes later comes as much later as the turn's last result did. Calls of one turn that went
on side by side do so in the ghost as well, so it never claims more than the agent's clock would have shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

SERVED = ("hit", "joined")


@dataclass(frozen=True, slots=True)
class Ghost:
    """Seconds that a run took, and that its ghost takes."""

    took_s: float
    serial_s: float

    @property
    def saved_s(self) -> float:
        """What the agent's clock shows less."""
        return self.serial_s - self.took_s


def ghost(turns: Sequence[Row]) -> Ghost:
    """The ghost of a run's turns, each with its claims, in order."""
    origin = turns[0]["began_at"] if turns else 0.0
    later_s = took_s = serial_s = 0.0
    for turn in turns:
        base = turn["began_at"] - origin
        ends = [base + (turn["duration_s"] or 0.0)]
        longer = list(ends)
        for claim in turn["claims"]:
            start, waited_s = base + (claim["began_s"] or 0.0), claim["waited_s"] or 0.0
            ends.append(start + waited_s)
            ran_s = max(waited_s, claim["latency_s"] or 0.0)
            longer.append(start + (ran_s if claim["outcome"] in SERVED else waited_s))
        took_s, serial_s = max(took_s, *ends), max(serial_s, later_s + max(longer))
        later_s += max(longer) - max(ends)
    return Ghost(took_s, serial_s)
