"""What usually follows: counts of next actions by the last one to four, backed off to shorter contexts.

Interpolated Witten-Bell back-off (method C of PPM: Moffat, IEEE Trans. Comm. 38(11), 1990) over canonical actions: a
tool's name with the status of its result, the user's and the agent's turns to speak. What failed trajectories did
counts less than what successful ones did, and old counts fade.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

MAX_ORDER = 4
HALF_LIFE = 2_000
"""Trajectories after which a count weighs half."""
MAX_CONTEXTS = 200_000
_RESCALE_AT = 1e6

SPEAKS = ""
"""The next action of an agent that calls nothing (more)."""


_SAME, _OTHER = "\0same", "\0other"


class Transitions:
    """Counts of next actions by context."""

    def __init__(self) -> None:
        self.counts: OrderedDict[tuple[str, ...], dict[str, float]] = OrderedDict()
        self.unit = 1.0
        """What one new observation counts; grows instead of all old counts being made smaller."""

    def chances(self, actions: Sequence[str], classes: Sequence[str]) -> list[float]:
        """Probability of each class after these actions; what is not among the classes is left out."""
        chances = dict.fromkeys(classes, 1.0 / max(len(classes), 1))
        for order in range(MAX_ORDER + 1):
            if order == 1:
                chances = self._by_kind(actions, chances)
            counts = self.counts.get(_context(actions, order))
            if counts is None:
                continue
            known = {name: counts[name] / self.unit for name in classes if name in counts}
            total = sum(known.values())
            if not total:
                continue
            novelty = 0.6 * len(known)
            for name in classes:
                chances[name] = (known.get(name, 0.0) + novelty * chances[name]) / (total + novelty)
        return [chances[name] for name in classes]

    def _by_kind(self, actions: Sequence[str], chances: dict[str, float]) -> dict[str, float]:
        """Give their shares to "the same tool again" and "no call", by what usually follows this kind of action."""
        counts = self.counts.get(("kind", _kind(actions)))
        last = _tool(actions)
        if counts is None:
            return chances
        shares = {name: counts.get(name, 0.0) / self.unit for name in (_SAME, SPEAKS, _OTHER)}
        total = sum(shares.values()) + 1.0
        fixed = {
            name: (shares[kind] + chances[name]) / total
            for name, kind in ((last, _SAME), (SPEAKS, SPEAKS))
            if name in chances
        }
        rest = sum(chance for name, chance in chances.items() if name not in fixed) or 1.0
        left = max(1.0 - sum(fixed.values()), 1e-6)
        shared = {name: fixed[name] if name in fixed else left * chance / rest for name, chance in chances.items()}
        whole = sum(shared.values())
        return {name: chance / whole for name, chance in shared.items()}

    def learn(self, actions: Sequence[str], name: str, weight: float = 1.0) -> None:
        """After these actions came this one."""
        outcome = name if name == SPEAKS else _SAME if name == _tool(actions) else _OTHER
        contexts = [(_context(actions, order), name) for order in range(min(MAX_ORDER, len(actions)) + 1)]
        for context, came in [*contexts, (("kind", _kind(actions)), outcome)]:
            counts = self.counts.setdefault(context, {})
            counts[came] = counts.get(came, 0.0) + self.unit * weight
            self.counts.move_to_end(context)
        while len(self.counts) > MAX_CONTEXTS:
            self.counts.popitem(last=False)

    def age(self) -> None:
        """One trajectory has passed."""
        self.unit *= 2 ** (1 / HALF_LIFE)
        if self.unit > _RESCALE_AT:
            for counts in self.counts.values():
                for name in counts:
                    counts[name] /= self.unit
            self.unit = 1.0


def _kind(actions: Sequence[str]) -> str:
    """What kind the last action is: a call just made, a result by its status, somebody's turn to speak."""
    last = actions[-1] if actions else "^"
    return "+" if last.endswith("+") else last.rpartition(":")[2] if ":" in last else last


def _tool(actions: Sequence[str]) -> str:
    """The tool of the last action that was a call."""
    for action in reversed(actions):
        if action.endswith("+"):
            return action[:-1]
        if ":" in action:
            return action.rpartition(":")[0]
    return "^"


def _context(actions: Sequence[str], order: int) -> tuple[str, ...]:
    return tuple(actions[-order:]) if order else ()
