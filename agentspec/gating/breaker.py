"""What does not pay is switched off and tried again: a window of net gain for each (predictor, tool), with back-off."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WINDOW = 20
"""Net gains that are looked at."""

FEWEST = 8
"""Bets before anything is switched off."""

TRIALS = 4
"""Bets that decide after a pause whether the next one follows."""

FIRST_PAUSE_S = 30.0
LONGEST_PAUSE_S = 3600.0


@dataclass(slots=True)
class Breaker:
    """Closed: everything passes. Open: nothing does, until a pause is over. On trial: a few do, and decide."""

    net_s: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Seconds that the last bets saved, less what they cost."""
    off_until_s: float | None = None
    pause_s: float = FIRST_PAUSE_S
    on_trial: int = 0
    """Trials that may still begin."""

    def refuses(self, now_s: float) -> str | None:
        """Why nothing may begin now; None where it may."""
        if self.off_until_s is None:
            return None
        if now_s < self.off_until_s:
            return f"it cost more than it saved; tried again in {self.off_until_s - now_s:.0f} s"
        return None if self.on_trial else "it is on trial after a pause, and the trials are under way"

    def began(self) -> None:
        """A bet was placed."""
        if self.off_until_s is not None and self.on_trial:
            self.on_trial -= 1

    def never_mind(self) -> None:
        """A bet that was placed neither cost nor saved anything: it was refused where it should have run."""
        if self.off_until_s is not None:
            self.on_trial = min(TRIALS, self.on_trial + 1)

    def add(self, net_s: float, now_s: float) -> None:
        """A bet is settled."""
        self.net_s.append(net_s)
        if self.off_until_s is None:
            if len(self.net_s) >= FEWEST and sum(self.net_s) < 0:
                self._open(now_s)
        elif now_s >= self.off_until_s and len(self.net_s) >= TRIALS:
            if sum(self.net_s) < 0:
                self.pause_s = min(LONGEST_PAUSE_S, 2 * self.pause_s)
                self._open(now_s)
            else:
                self.off_until_s, self.pause_s = None, FIRST_PAUSE_S

    def _open(self, now_s: float) -> None:
        self.off_until_s, self.on_trial = now_s + self.pause_s, TRIALS
        self.net_s.clear()
