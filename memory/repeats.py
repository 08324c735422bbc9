"""What a trajectory does again and again counts less each time, unless others are known to do it too."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable

from agentspec.memory.hashing import code

MAX_PLACES = 60_000
SEVERAL = 2
"""Other trajectories that make a habit more than one trajectory's own."""

Witnessed = OrderedDict[str, Counter[int]]
"""By place (an action, an argument): how many trajectories had each habit there."""


class Repeats:
    """The habits of one trajectory while it is learnt.

    The n-th time that it does the same counts 1/n², so that none outweighs several; what several others did before it
    counts in full each time. `scope`: whose it is.
    """

    def __init__(self, witnessed: Witnessed, scope: str) -> None:
        self._witnessed = witnessed
        self._scope = scope
        self._seen: Counter[tuple[str, int]] = Counter()

    def own(self, value: int) -> int:
        """The habit of giving a value that stood nowhere: a scope's own."""
        return code(f"{self._scope} {value}")

    def weight(self, place: str, habit: int) -> float:
        """What doing this here once more counts."""
        self._seen[place, habit] += 1
        known = self._witnessed.get(place)
        if known is not None and known.get(habit, 0) >= SEVERAL:
            return 1.0
        return float(self._seen[place, habit]) ** -2

    def most(self, place: str, habits: Iterable[int]) -> float:
        """What doing all of these here once more counts, where any of them may be the reason."""
        return max([self.weight(place, habit) for habit in habits])

    def settle(self) -> None:
        """It is over: it is a witness of each of its habits from now on."""
        for place, habit in self._seen:
            counts = self._witnessed.setdefault(place, Counter())
            counts[habit] += 1
            self._witnessed.move_to_end(place)
        while len(self._witnessed) > MAX_PLACES:
            self._witnessed.popitem(last=False)
