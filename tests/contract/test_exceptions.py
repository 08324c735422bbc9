"""A run ahead that raised counts for nothing; what the real call raises reaches the agent as it is, once."""

from __future__ import annotations

from typing import Any

import pytest

from agentspec import speculate
from tests.contract.scripted import Gate, asks_for
from tests.contract.support import BOTH_WAYS

pytestmark = BOTH_WAYS


class Flaky(Exception):
    pass


def test_a_run_ahead_that_raised_is_run_again(ready):
    runs: list[int] = []
    failed = Gate()

    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> str:
        runs.append(1)
        if len(runs) == 1:
            failed.open()
            raise Flaky("once")
        return "well"

    proxy, _ = ready(get, failed)
    assert get("A") == "well"
    assert len(runs) == 2
    (bet,) = proxy.settled()
    assert (bet["outcome"], "once" in bet["reason"]) == ("failed", True)


@pytest.mark.parametrize("error", [Flaky("always"), SystemExit(2), KeyboardInterrupt()])
def test_an_exception_of_the_real_call_reaches_the_agent_as_it_is(ready, error):
    runs: list[int] = []
    failed = Gate()

    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> str:
        runs.append(1)
        failed.open()
        raise error

    ready(get, failed)
    with pytest.raises(type(error)) as caught:
        get("A")
    assert caught.value is error
    assert len(runs) == 2  # once ahead, once really


def test_an_exception_without_a_guess_comes_from_one_run(endpoint, start, join, agent_of):
    runs: list[int] = []

    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> str:
        runs.append(1)
        raise Flaky

    proxy = start()
    agent = agent_of(join(proxy, get), get)
    endpoint.answers(asks_for("get", {"key": "A"}))
    with pytest.raises(Flaky):
        agent.turn()
    assert len(runs) == 1


def test_a_call_that_does_not_fit_fails_as_python_says(start, join):
    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> str:
        return key

    join(start(), get)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        get()
    with pytest.raises(TypeError, match="unexpected keyword argument 'kee'"):
        get("A", kee=1)


def test_a_result_that_can_be_used_only_once_is_not_handed_over(ready):
    ran = Gate()

    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> Any:
        ran.open()
        return (i for i in range(3))

    proxy, _ = ready(get, ran)
    assert list(get("A")) == [0, 1, 2]
    assert [bet["outcome"] for bet in proxy.settled()] == ["failed"]
