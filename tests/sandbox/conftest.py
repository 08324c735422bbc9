"""The place that a check of the conformance suite runs in: one for each module and tier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.places import open_place


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_place(request.param, tmp_path_factory.mktemp("workspace")) as opened:
        yield opened
