"""What speculation has cost and saved: in one trajectory, and of one predictor in all of a tenant's.

Where predictions are always wrong, it is over there soon; and who is always wrong does not begin again with each new
trajectory, so that many short ones lose no more than one long one.
"""

from __future__ import annotations

from dataclasses import dataclass

ALLOWED_SHARE = 0.01
"""What discarded work may cost, as a share of the time that the trajectory has taken, beyond what hits saved."""

AT_LEAST_S = 60.0
"""A trajectory is held to take so long when it begins."""

WRONG_IN_A_ROW = 6
"""After so many discarded runs without a right prediction nothing is run until a prediction comes true."""


@dataclass(slots=True)
class Account:
    """One trajectory. Times in seconds."""

    took_s: float = 0.0
    """In turns and waiting for tools."""
    lost_s: float = 0.0
    saved_s: float = 0.0
    wrong_in_a_row: int = 0
    tenant: str | None = None

    def refuses(self) -> str | None:
        """Why nothing more may be bet on here; None where it may."""
        if self.wrong_in_a_row >= WRONG_IN_A_ROW:
            return f"the last {self.wrong_in_a_row} runs of this trajectory were discarded"
        if self.lost_s > self.saved_s + ALLOWED_SHARE * max(AT_LEAST_S, self.took_s):
            return f"discarded work has cost this trajectory {self.lost_s:.2f} s, more than {ALLOWED_SHARE:.0%}"
        return None

    def took(self, seconds: float) -> None:
        """The trajectory went on."""
        self.took_s += seconds

    def cost(self, seconds: float) -> None:
        """Something was spent that is not a run: a probe."""
        self.lost_s += seconds

    def served(self, saved_s: float) -> None:
        """A run was handed over."""
        self.saved_s += saved_s
        self.wrong_in_a_row = 0

    def discarded(self, cost_s: float) -> None:
        """A run was for nothing."""
        self.lost_s += cost_s
        self.wrong_in_a_row += 1

    def came_true(self) -> None:
        """A prediction was right, whether it ran or not: whoever makes it is no adversary."""
        self.wrong_in_a_row = 0


@dataclass(slots=True)
class Standing:
    """One predictor at one tenant, over all trajectories. `began_s`: what those had taken when it was first seen."""

    began_s: float
    lost_s: float = 0.0
    saved_s: float = 0.0

    def refuses(self, took_s: float) -> str | None:
        """Why it may not run anything; `took_s`: what the tenant's trajectories have taken in all."""
        allowed_s = ALLOWED_SHARE * max(AT_LEAST_S, took_s - self.began_s)
        if self.lost_s > self.saved_s + allowed_s:
            return f"its discarded work has cost this tenant {self.lost_s:.2f} s, more than {ALLOWED_SHARE:.0%}"
        return None
