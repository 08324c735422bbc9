"""Learning takes a quarter of a core at most, whatever there is to learn."""

from __future__ import annotations

import time

from agentspec.memory.unhurried import unhurried


def test_after_each_thing_there_is_a_rest_of_three_times_as_long() -> None:
    rests: list[float] = []
    spent: list[float] = []
    for _ in unhurried(range(4), rests.append):
        began_s = time.thread_time()
        while time.thread_time() - began_s < 0.01:
            pass
        spent.append(time.thread_time() - began_s)
    assert len(rests) == 4
    assert all(rest >= 3.0 * took for rest, took in zip(rests, spent, strict=True))
    assert sum(rests) <= 3.0 * sum(spent) + 0.02


def test_to_wait_takes_no_rest() -> None:
    rests: list[float] = []
    for _ in unhurried(range(2), rests.append):
        time.sleep(0.05)
    assert max(rests) < 0.1


def test_nothing_to_do_takes_nothing() -> None:
    rests: list[float] = []
    assert list(unhurried([], rests.append)) == []
    assert rests == []
