"""The memory that is measured."""

from __future__ import annotations

from agentspec.memory.recall import Recall
from agentspec.recollection import Recollection


def build(without: frozenset[str] = frozenset()) -> Recollection:
    """An empty memory, without the parts named."""
    return Recall(without=without)
