"""A few seconds of each kind of fuzzing; the modules beside this one run for as long as one likes."""

from __future__ import annotations

import asyncio

from tests.fuzz import fuzz_doors, fuzz_wire


def test_no_bytes_harm_the_readers_of_the_wire() -> None:
    assert fuzz_wire.run(seed=1, seconds=5) > 1000


def test_no_http_harms_the_proxy() -> None:
    found = asyncio.run(fuzz_doors.fuzz(seed=1000, seconds=5))
    assert found.faults == []
    assert found.cases > 200
    assert found.statuses["200"] > 50
