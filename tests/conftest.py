"""For every test: nothing is kept in the developer's own folders, and garbage is collected without a long stop.

What the tests before have left is not gone through again: after thousands of tests a full collection stops the process
for longer than a claim waits for its grant.
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


@pytest.fixture(autouse=True, scope="session")
def _state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("AGENTSPEC_HOLDOUT_SHARE", "0")  # tests of the control group ask for it
        yield
