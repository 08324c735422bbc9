"""The loop whose time is its own: time never goes back, timers fire in order, and a run is the same each time."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec import clock
from agentspec.proxy.bench.agent.machine import Machine
from agentspec.proxy.bench.agent.virtual_loop import Deadlock, run_virtually

DELAYS_S = st.lists(st.floats(min_value=0.0, max_value=1e6, allow_nan=False), max_size=30)


async def _fired(delays_s: list[float]) -> list[tuple[int, float]]:
    """Timers by their number and the time at which they fired."""
    fired: list[tuple[int, float]] = []
    loop = asyncio.get_running_loop()
    for nth, delay_s in enumerate(delays_s):
        loop.call_later(delay_s, lambda nth=nth: fired.append((nth, loop.time())))
    await asyncio.sleep(max(delays_s, default=0.0))
    await asyncio.sleep(1.0)
    return fired


@given(DELAYS_S)
@settings(max_examples=60, deadline=None)
def test_timers_fire_in_order_and_time_never_goes_back(delays_s):
    fired = run_virtually(_fired(delays_s))
    assert sorted(nth for nth, _ in fired) == list(range(len(delays_s)))
    times = [at_s for _, at_s in fired]
    assert times == sorted(times)
    assert [delays_s[nth] for nth, _ in fired] == pytest.approx(sorted(delays_s))
    for nth, at_s in fired:
        assert at_s == pytest.approx(delays_s[nth], abs=1e-6, rel=1e-9)


async def _wandering(seed: int) -> list[tuple[int, float]]:
    """Tasks that wait at random and hand work to a machine: a trace of everything that happened."""
    rng, machine, trace = random.Random(seed), Machine(2), []

    async def walker(name: int) -> None:
        for _ in range(4):
            await asyncio.sleep(rng.uniform(0.0, 3.0))
            await machine.work(rng.uniform(0.0, 0.5), proxy=name % 2 == 0)
            trace.append((name, clock.monotonic()))

    await asyncio.gather(*map(walker, range(6)))
    return trace


@given(st.integers())
@settings(max_examples=25, deadline=None)
def test_a_run_is_the_same_each_time(seed):
    first = run_virtually(_wandering(seed))
    assert first == run_virtually(_wandering(seed))
    assert [at_s for _, at_s in first] == sorted(at_s for _, at_s in first)


def test_time_passes_at_once_and_only_in_the_jump():
    async def year() -> tuple[float, float]:
        before_s = clock.monotonic()
        sum(range(100_000))
        still_s = clock.monotonic()
        await asyncio.sleep(365 * 86_400)
        return still_s - before_s, clock.monotonic() - before_s

    assert run_virtually(year()) == (0.0, pytest.approx(365 * 86_400))


def test_the_machines_clock_is_back_afterwards():
    run_virtually(asyncio.sleep(1e9))
    assert clock.monotonic() < 1e9


def test_what_never_comes_is_told():
    async def waits() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtually(waits())


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.booleans()), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_no_core_does_two_things_at_once(jobs):
    async def all_of_them() -> float:
        machine = Machine(2)
        ends = [machine.occupied(seconds, proxy=proxy) for seconds, proxy in jobs]
        proxys = [end for end, (_, proxy) in zip(ends, jobs, strict=True) if proxy]
        assert proxys == sorted(proxys)  # its event loop does one thing after the other
        return max(ends)

    total = sum(seconds for seconds, _ in jobs)
    last = run_virtually(all_of_them())
    assert last >= total / 2 - 1e-9
    assert last >= sum(seconds for seconds, proxy in jobs if proxy) - 1e-9


def test_a_load_leaves_less_for_the_rest():
    async def under_load() -> tuple[float, float, float]:
        machine = Machine(2)
        free_s = machine.occupied(1.0)
        with machine.loaded(1.0, proxy=0.5):
            slow_s = machine.occupied(1.0, proxy=True)
            late = machine.late
        return free_s, slow_s, late

    free_s, slow_s, late = run_virtually(under_load())
    assert (free_s, slow_s) == (1.0, 2.0)
    assert late == 1.0
