"""The tools against the real database, HTTP service and text search."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx
import pytest

from agentspec.proxy.demo.shop import Handbook, Latency, Shop
from agentspec.proxy.demo.tools import shop_tools, speculated, undecorated


@pytest.mark.parametrize("item", ["tent", "tents", "Tent"])
def test_stock_finds_an_item_in_singular_and_plural(shop: Shop, item: str) -> None:
    assert undecorated(shop_tools(shop))["stock"](item=item) == {"item": "tent", "pieces": 7}


def test_an_order_names_its_parcel_and_the_carrier_knows_where_it_is(shop: Shop) -> None:
    tools = undecorated(shop_tools(shop))
    order = tools["order"](number="4420")
    assert order == {"number": "4420", "item": "rope", "status": "sent", "parcel": "PX58"}
    assert tools["track"](parcel=order["parcel"]) == {"parcel": "PX58", "place": "Geneva", "due": "Monday"}


@pytest.mark.parametrize(
    ("topic", "page", "fact"),
    [
        ("returns", "returns", "45 days"),
        ("shipping", "shipping", "free for orders above 80 euros"),
        ("warranty", "warranty", "5 years"),
        ("wrapping", "wrapping", "4 euros"),
        ("new soles", "repairs", "60 euros"),
        ("schools", "payment", "on account"),
    ],
)
def test_the_handbook_answers_with_the_paragraph_that_fits(shop: Shop, topic: str, page: str, fact: str) -> None:
    found = undecorated(shop_tools(shop))["handbook"](topic=topic)
    assert found["page"] == page
    assert fact in found["text"]


@pytest.mark.parametrize(
    ("tool", "argument"), [("stock", "piano"), ("order", "1"), ("track", "PX99"), ("handbook", "zzz")]
)
def test_what_is_not_there_is_an_error_the_model_can_read(shop: Shop, tool: str, argument: str) -> None:
    assert "error" in undecorated(shop_tools(shop))[tool](argument)


def test_the_handbook_of_another_folder(tmp_path: Path) -> None:
    (tmp_path / "dogs.md").write_text("# Dogs\n\nDogs are welcome\nin the shop.\n\nThey wait outside the cafe.\n")
    handbook = Handbook(tmp_path)
    assert handbook.search("dog") == {"page": "dogs", "text": "Dogs are welcome in the shop."}
    assert handbook.search("cafe") == {"page": "dogs", "text": "They wait outside the cafe."}
    assert handbook.search("cats") is None


def test_tools_can_be_called_from_several_threads_at_once(shop: Shop) -> None:
    tools = undecorated(shop_tools(shop))
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(tools["stock"]("rope"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{"item": "rope", "pieces": 41}] * 8


def test_the_declared_latency_is_what_a_caller_waits() -> None:
    with Shop(Latency(database=0.05, carrier=0.06, handbook=0.07)) as shop:
        tools = undecorated(shop_tools(shop))
        for name, argument, least in (("stock", "tent", 0.05), ("track", "PX83", 0.06), ("handbook", "returns", 0.07)):
            began = time.perf_counter()
            tools[name](argument)
            assert least <= time.perf_counter() - began < least + 1.0


def test_nothing_answers_after_the_shop_has_closed() -> None:
    with Shop(Latency(0.0, 0.0, 0.0)) as shop:
        url = shop.carrier.url
        assert httpx.get(f"{url}/parcels/PX83", trust_env=False).status_code == 200
        threads = {thread.name for thread in threading.enumerate()}
        assert "demo-carrier" in threads
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/parcels/PX83", trust_env=False)
    assert "demo-carrier" not in {thread.name for thread in threading.enumerate()}


def test_the_schemas_name_the_functions_parameters(shop: Shop) -> None:
    for tool in shop_tools(shop):
        function = tool.schema["function"]
        assert function["name"] == tool.name
        assert function["description"]
        parameters = tool.function.__code__.co_varnames[: tool.function.__code__.co_argcount]
        assert tuple(function["parameters"]["properties"]) == parameters


def test_declared_tools_without_a_proxy_return_what_the_plain_ones_do(shop: Shop) -> None:
    tools = shop_tools(shop)
    assert speculated(tools)["stock"](item="tent") == undecorated(tools)["stock"](item="tent")
