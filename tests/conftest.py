"""For every test: what the ones before have left is not gone through again at each collection of garbage.

After thousands of tests a full collection stops the process for longer than a claim waits for its grant.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _old_objects_are_left_alone() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
