"""State that follows from a call's arguments: a write of one order leaves the reads of another alone."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.scripted import Gate, call, calls_end, say
from tests.contract.support import BOTH_WAYS

pytestmark = BOTH_WAYS


def order(order_id: str) -> set[str]:
    return {f"order:{order_id}"}


class Shop:
    """Orders by number; a read and a write of one, whose domains are the test's."""

    def __init__(self, reads: Any = order, writes: Any = order) -> None:
        self.states: dict[str, int] = {}
        self.runs: list[str] = []
        self.writing, self.may_end = Gate(), Gate()
        self.may_end.open()

        @speculate(effect="read", stable_for=30.0, reads=reads)
        def get(order_id: str, region: str = "north") -> int:
            self.runs.append(order_id)
            return self.states.get(order_id, 0)

        @speculate(effect="write", writes=writes)
        def change(order_id: str, region: str = "north") -> str:
            self.writing.open()
            self.may_end.wait(5)
            self.states[order_id] = self.states.get(order_id, 0) + 1
            return "ok"

        self.get, self.change = get, change


def claimed(scene: Any, shop: Shop, *written: Any, read: str = "A1") -> tuple[int, str]:
    """What a claim of order `read` got after writes of others, and what became of its bet."""
    made = scene(shop.get, shop.change)
    agent, calls = made.asked("get", order_id=read)
    for which in written:
        shop.change(**which) if isinstance(which, dict) else shop.change(which)
    (result,) = agent.act(calls)
    return result, made.outcomes[0]


def test_a_write_of_another_order_leaves_a_read_fresh(scene):
    assert claimed(scene, Shop(), "B2", "C3") == (0, "hit")


def test_a_write_of_the_same_order_makes_it_stale(scene):
    assert claimed(scene, Shop(), "B2", "A1") == (1, "stale")


def test_a_write_without_names_makes_reads_of_every_order_stale(scene):
    assert claimed(scene, Shop(writes=()), "B2") == (0, "stale")


def test_a_read_without_names_is_made_stale_by_a_write_of_any_order(scene):
    assert claimed(scene, Shop(reads=()), "B2") == (0, "stale")


def test_a_function_that_names_nothing_means_everything(scene):
    assert claimed(scene, Shop(writes=lambda order_id: set()), "B2") == (0, "stale")
    assert claimed(scene, Shop(reads=lambda order_id: []), "B2") == (0, "stale")


def test_a_fixed_name_and_a_name_by_argument_meet(scene):
    assert claimed(scene, Shop(writes={"order:A1"}), "B2") == (0, "stale")
    assert claimed(scene, Shop(reads={"order:B2"}), "B2") == (0, "stale")
    assert claimed(scene, Shop(reads={"order:B2"}), "C3") == (0, "hit")


def raises(order_id: str) -> set[str]:
    raise KeyError(order_id)


@pytest.mark.parametrize("bad", [raises, lambda order_id: order_id, lambda order_id: [1]])
def test_a_write_whose_names_cannot_be_told_is_a_write_of_everything(scene, bad):
    shop = Shop(writes=bad)
    assert claimed(scene, shop, "B2") == (0, "stale")
    assert shop.states == {"B2": 1}, "the write itself goes on"


@pytest.mark.parametrize("bad", [raises, lambda order_id: order_id, lambda order_id: [1]])
def test_a_read_whose_names_cannot_be_told_does_not_run_ahead(scene, bad):
    shop = Shop(reads=bad)
    made = scene(shop.get, shop.change)
    assert made.play("get", order_id="A1") == 0
    assert shop.runs == ["A1"]
    assert made.outcomes == ["vetoed"]
    assert "reads= of the tool failed" in made.bets()[0]["reason"] or "reads" in made.bets()[0]["reason"]


def region(order_id: str, region: str) -> set[str]:
    return {f"{region}:{order_id}"}


def test_defaults_are_passed_to_the_functions(scene):
    assert claimed(scene, Shop(region, region), {"order_id": "A1", "region": "south"}) == (0, "hit")
    assert claimed(scene, Shop(region, region), {"order_id": "A1", "region": "north"}) == (1, "stale")
    assert claimed(scene, Shop(region, region), "A1") == (1, "stale")


def test_a_write_in_its_middle_holds_back_the_reads_of_its_order_alone(scene):
    shop = Shop()
    made = scene(shop.get, shop.change)
    shop.may_end = Gate()
    writer = threading.Thread(target=shop.change, args=("A1",))
    writer.start()
    assert shop.writing.wait()
    made.guesses = [ToolCall("get", {"order_id": order_id}) for order_id in ("A1", "B2")]
    both = [chunk for i, key in enumerate(("A1", "B2")) for chunk in call("get", {"order_id": key}, f"c{i}", i)]
    agent, calls = made.think(say("x"), made.over(2), *both, *calls_end())
    assert agent.act(calls) == [0, 0]
    assert made.outcomes == ["vetoed", "hit"]
    shop.may_end.open()
    writer.join()


def test_a_relayed_write_holds_back_the_reads_of_every_order(scene):
    """What it writes is known only where it is called."""
    shop = Shop()
    made = scene(shop.get, shop.change)
    made.guesses = [ToolCall("get", {"order_id": "B2"})]
    both = [*call("change", {"order_id": "A1"}, "c0", 0), *call("get", {"order_id": "B2"}, "c1", 1)]
    agent, calls = made.think(say("x"), made.over(), *both, *calls_end())
    assert agent.act(calls) == ["ok", 0]
    assert made.outcomes[0] == "stale"


def test_a_function_sees_validated_arguments_whichever_way_the_call_is_written(scene):
    shop = Shop()
    made = scene(shop.get, shop.change)
    for write in (lambda: shop.change("A1"), lambda: shop.change(order_id="A1"), lambda: shop.change("A1", "north")):
        agent, calls = made.asked("get", order_id="A1")
        write()
        agent.act(calls)
        assert made.outcomes[-1] == "stale"
        made.tell(agent)
