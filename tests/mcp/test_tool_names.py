"""Which held tool a request's name means."""

from __future__ import annotations

import pytest

from agentspec.proxy.tool_names import held_name, held_names

HELD = {"get_order", "cancel_order", "orders.find"}


@pytest.mark.parametrize(
    "requested",
    [
        "get_order",
        "mcp__shop__get_order",
        "mcp__my-shop__get_order",
        "mcp__claude_ai_Shop__get_order",
        "mcp_shop__get_order",
        "shop_get_order",
        "my-shop_get_order",
        "shop.get_order",
        "shop__get_order",
        "mcp_shop_get_order",
    ],
)
def test_a_name_behind_a_servers_is_known(requested: str) -> None:
    assert held_name(requested, HELD) == "get_order"


@pytest.mark.parametrize(
    "requested",
    [
        "",
        "forget_order",
        "get_orders",
        "mcp__shop__",
        "_get_order",
        "__get_order",
        "shop get_order",
        "Get_Order",
        "get",
    ],
)
def test_another_name_is_nobodys(requested: str) -> None:
    assert held_name(requested, HELD) is None


def test_the_very_name_comes_before_a_longer_one() -> None:
    assert held_name("get_order", {"order", "get_order"}) == "get_order"
    assert held_name("order", {"order", "get_order"}) == "order"


def test_what_could_be_two_is_none() -> None:
    assert held_name("shop_get_order", {"order", "get_order"}) is None
    assert held_name("mcp__shop__get_order", {"order", "get_order"}) is None
    assert held_name("mcp__shop__get_order", set()) is None


def test_a_whole_request_tells_what_one_name_does_not() -> None:
    offered = ["mcp__shop__order", "mcp__shop__get_order", "Bash", "cancel_order"]
    assert held_names(offered, {"order", "get_order"}) == {
        "mcp__shop__order": "order",
        "mcp__shop__get_order": "get_order",
    }


def test_a_verb_is_not_taken_for_a_server() -> None:
    assert held_names(["cancel_order", "search"], {"order"}) == {}
    assert held_names(["mcp__shop__order", "cancel_order"], {"order"}) == {"mcp__shop__order": "order"}


def test_a_request_may_offer_only_some_of_the_tools() -> None:
    assert held_names(["mcp__shop__get", "mcp__other__see"], {"get", "put", "pay"}) == {"mcp__shop__get": "get"}
    assert held_names(["mcp_shop_get", "see"], {"get", "put", "pay"}) == {"mcp_shop_get": "get"}
    assert held_names(["shop_get", "shop_put"], {"get", "put", "pay"}) == {}
    assert held_names(["shop_get", "shop_put", "shop_pay"], {"get", "put"}) == {}


def test_a_server_that_offers_more_than_is_held_is_another() -> None:
    assert held_names(["mcp__shop__get", "mcp__shop__see"], {"get"}) == {}
    assert held_names(["shop_get", "shop_put", "shop_see"], {"get", "put"}) == {}


def test_two_servers_that_could_be_it_are_none() -> None:
    assert held_names(["a_get", "a_put", "b_get", "b_put"], {"get", "put"}) == {}


def test_names_that_begin_with_a_separator_or_hold_one_are_found() -> None:
    assert held_names(["mcp__shop__orders.find"], {"orders.find"}) == {"mcp__shop__orders.find": "orders.find"}
    assert held_name("shop_orders.find", {"orders.find", "find"}) is None


def test_plain_names_need_no_prefix() -> None:
    assert held_names(["get", "put", "x_get"], {"get", "put"}) == {"get": "get", "put": "put"}
    assert held_names(["get"], set()) == {}
