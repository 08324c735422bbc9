"""Whole calls, learnt from a dozen trajectories of fresh values: nothing can be known by heart, only where it stood."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agentspec.memory.compose import Composed
from agentspec.memory.context import Context
from agentspec.memory.recall import Recall, values_within
from tests.memory.talks import Talk

TAUGHT, ASKED = 12, 5

Task = tuple[Talk, str, dict[str, Any]]
"""A trajectory up to where a call is due, and the tool and arguments that are due."""


def word(rng: random.Random, length: int = 6) -> str:
    return "".join(rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(length))


def name(rng: random.Random) -> str:
    return word(rng).capitalize()


def code(rng: random.Random, head: str = "W") -> str:
    return f"{head}{rng.randrange(10**5, 10**6)}"


def due(memory: Recall, task: Task) -> list[Composed]:
    talk, tool, _ = task
    context = Context()
    context.sync(talk.history)
    seen = memory.parts.pointer.look(context)
    scope = values_within(talk.scope, talk.trajectory)
    return memory.parts.composer.compose(seen, tool, talk.tools.get(tool, {}), scope, {})


def begun(number: int, tools: Mapping[str, Any] | None = None, scope: str | None = None) -> Talk:
    return Talk(f"t{number}", scope, tools or {})


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


TEXT, NUMBER, TEXTS = {"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}}


def a_field_of_a_result(rng: random.Random, talk: Talk) -> Task:
    order, user = code(rng), code(rng, "U")
    talk.user("where is my parcel?")
    talk.call("get_user", {"id": user, "zip": code(rng, ""), "last": {"order": order, "by": name(rng)}})
    return talk, "get_order", {"order_id": order}


def a_field_under_another_name(rng: random.Random, talk: Talk) -> Task:
    target = word(rng)
    talk.user("deploy it").call(
        "status", {"build": word(rng), "host": target, "region": word(rng), "commit": word(rng)}
    )
    return talk, "restart", {"what": target}


def a_word_of_the_user(rng: random.Random, talk: Talk) -> Task:
    order = code(rng, "#W")
    talk.user(f"Hi, I am {name(rng)} {name(rng)} of {code(rng, '')}. Please cancel order {order} at once.")
    return talk, "cancel", {"order_id": order}


def a_quoted_part(rng: random.Random, talk: Talk) -> Task:
    title = f"{word(rng)} {word(rng)}"
    talk.user(f'play "{title}" by {name(rng)} for {word(rng)}')
    return talk, "play", {"title": title}


def a_name_of_two_words(rng: random.Random, talk: Talk) -> Task:
    whom = f"{name(rng)} {name(rng)}"
    talk.user(f"find the customer {whom} in {word(rng)}, code {code(rng)}")
    return talk, "find", {"name": whom}


def a_day_of_this_year(rng: random.Random, talk: Talk) -> Task:
    month, day = rng.choice([("May", "05"), ("June", "06"), ("March", "03")]), rng.randrange(10, 29)
    talk.user(f"It is 2024-01-02. Book the trip on {month[0]} {day}th for {name(rng)}")
    return talk, "book", {"date": f"2024-{month[1]}-{day}"}


def an_earlier_argument(rng: random.Random, talk: Talk) -> Task:
    session = word(rng)
    talk.user("go").call("open", "ok", session=session, mode=word(rng)).call("work", "ok", speed=rng.randrange(100))
    return talk, "close", {"session": session}


def a_number_as_text(rng: random.Random, talk: Talk) -> Task:
    number = rng.randrange(10**4, 10**5)
    talk.user("and my bill?").call(
        "get_user", {"bill": number, "age": rng.randrange(90), "visits": rng.randrange(1000)}
    )
    return talk, "get_bill", {"bill": str(number)}


def a_number_as_a_number(rng: random.Random, talk: Talk) -> Task:
    amount = rng.randrange(100, 10**4)
    talk.user(f"send ${amount} to {name(rng)} please")
    return talk, "send", {"amount": amount}


def the_next_of_a_list(rng: random.Random, talk: Talk) -> Task:
    orders = [code(rng) for _ in range(5)]
    talk.user("which of my orders is late?").call("get_user", {"orders": orders, "mail": word(rng)})
    for order in orders[: rng.randrange(4)]:
        talk.call("get_order", {"order_id": order, "late": False, "price": rng.randrange(99)}, order_id=order)
    return talk, "get_order", {"order_id": orders[sum(said.calls != () for said in talk.history) - 1]}


def the_record_that_the_user_means(rng: random.Random, talk: Talk) -> Task:
    items = [{"name": word(rng), "item_id": code(rng, ""), "price": rng.randrange(100)} for _ in range(4)]
    meant = rng.choice(items)
    talk.user(f"I want to return the {meant['name']}").call("get_order", {"items": items, "status": "delivered"})
    return talk, "return_item", {"item_id": meant["item_id"]}


def two_fields_of_one_record(rng: random.Random, talk: Talk) -> Task:
    rows = [{"name": word(rng), "sku": code(rng, "S"), "shop": code(rng, "P")} for _ in range(4)]
    meant = rng.choice(rows)
    talk.user(f"buy one {meant['name']}").call("search", rows)
    return talk, "buy", {"sku": meant["sku"], "shop": meant["shop"]}


def a_list_of_texts(rng: random.Random, talk: Talk) -> Task:
    files = [f"{word(rng)}.py" for _ in range(rng.randrange(2, 5))]
    talk.user("lint it").call("changed", {"files": files, "authors": [name(rng), name(rng)]})
    return talk, "lint", {"files": files}


def one_text_as_a_list(rng: random.Random, talk: Talk) -> Task:
    item = code(rng, "I")
    talk.user("take it back").call("get_order", {"item": item, "order": code(rng)})
    return talk, "return_items", {"items": [item]}


def records_with_some_fields(rng: random.Random, talk: Talk) -> Task:
    rows = [
        {"sku": code(rng, "S"), "price": rng.randrange(99), "count": rng.randrange(9)}
        for _ in range(rng.randrange(1, 4))
    ]
    talk.user("order all of it again").call("last_order", {"id": code(rng), "items": rows})
    return talk, "order", {"items": [{"sku": row["sku"], "count": row["count"]} for row in rows]}


def a_record_within_a_result(rng: random.Random, talk: Talk) -> Task:
    address = {
        "street": f"{word(rng)} 5",
        "city": name(rng),
        "place": {"lat": rng.randrange(90), "lon": rng.randrange(90)},
    }
    talk.user("ship it home").call("get_user", {"id": code(rng), "home": address, "card": {"last": code(rng, "")}})
    return talk, "ship", {"address": address}


def nothing(rng: random.Random, talk: Talk) -> Task:
    talk.user(f"what is new, {word(rng)}?").call("look", {"at": word(rng)})
    return talk, "refresh", {}


COPIED: dict[Callable[[random.Random, Talk], Task], dict[str, Any]] = {
    a_field_of_a_result: schema(order_id=TEXT),
    a_field_under_another_name: schema(what=TEXT),
    a_word_of_the_user: schema(order_id=TEXT),
    a_quoted_part: schema(title=TEXT),
    a_name_of_two_words: schema(name=TEXT),
    a_day_of_this_year: schema(date=TEXT),
    an_earlier_argument: schema(session=TEXT),
    a_number_as_text: schema(bill=TEXT),
    a_number_as_a_number: schema(amount=NUMBER),
    the_next_of_a_list: schema(order_id=TEXT),
    the_record_that_the_user_means: schema(item_id=TEXT),
    two_fields_of_one_record: schema(sku=TEXT, shop=TEXT),
    a_list_of_texts: schema(files=TEXTS),
    one_text_as_a_list: schema(items=TEXTS),
    records_with_some_fields: schema(items={"type": "array", "items": {"type": "object", "properties": {}}}),
    a_record_within_a_result: schema(address={"type": "object"}),
    nothing: {},
}


def taught(kind: Callable[[random.Random, Talk], Task], tools: Mapping[str, Any], scope: str | None = None) -> Recall:
    memory, rng = Recall(), random.Random(f"taught {kind.__name__}")
    for number in range(TAUGHT):
        talk, tool, arguments = kind(rng, begun(number, tools, scope))
        memory.learn(talk.call(tool, "done", **arguments).says("That is done.").past())
    return memory


def top(memory: Recall, task: Task) -> dict[str, Any] | None:
    made = due(memory, task)
    return made[0].call.arguments if made else None


@pytest.mark.parametrize("known", [True, False], ids=["with its schema", "without a schema"])
@pytest.mark.parametrize("kind", COPIED, ids=lambda kind: kind.__name__)
def test_where_arguments_come_from_is_learnt(kind: Callable[[random.Random, Talk], Task], known: bool) -> None:
    if not known and kind is a_number_as_text:
        pytest.skip("only a schema says that text is wanted")
    tool = kind(random.Random(0), begun(0))[1]
    tools = {tool: COPIED[kind] if known else {}, "other": schema(x=TEXT)}
    memory, rng = taught(kind, tools), random.Random(f"asked {kind.__name__}")
    tasks = [kind(rng, begun(100 + number, tools)) for number in range(ASKED)]
    assert [top(memory, task) for task in tasks] == [task[2] for task in tasks]


def test_a_usual_value_is_proposed_within_the_scope() -> None:
    def kind(rng: random.Random, talk: Talk) -> Task:
        return talk.user(f"how warm is it, {word(rng)}?"), "weather", {"unit": "celsius", "city": "Oslo"}

    tools = {"weather": schema(unit=TEXT, city=TEXT)}
    memory = taught(kind, tools, scope="anna")
    assert top(memory, kind(random.Random(1), begun(99, tools, "anna"))) == {"unit": "celsius", "city": "Oslo"}
    others = due(memory, kind(random.Random(1), begun(99, tools, "bert")))
    assert not {"celsius", "Oslo"} & {value for one in others for value in one.call.arguments.values()}


def test_what_was_not_learnt_is_not_known() -> None:
    rng = random.Random(7)
    tasks = [kind(rng, begun(99, {})) for kind in COPIED for _ in range(ASKED)]
    assert sum(top(Recall(), task) == task[2] for task in tasks) <= len(tasks) / 4


def test_a_member_of_an_enumeration_is_chosen_by_what_the_user_says() -> None:
    def kind(rng: random.Random, talk: Talk) -> Task:
        how = rng.choice(["refund", "exchange", "repair"])
        return talk.user(f"I would like a {how} for {word(rng)}"), "settle", {"how": how}

    tools = {"settle": schema(how={"type": "string", "enum": ["exchange", "repair", "refund"]})}
    memory, rng = taught(kind, tools), random.Random(1)
    tasks = [kind(rng, begun(99, tools)) for _ in range(ASKED)]
    assert [top(memory, task) for task in tasks] == [task[2] for task in tasks]


def test_arguments_that_are_left_out_at_times_are_left_out_where_they_were() -> None:
    def kind(rng: random.Random, talk: Talk) -> Task:
        order, retry = code(rng), rng.random() < 0.5
        talk.user(f"pay {order}")
        if retry:
            talk.call("pay", "error: declined", order=order)
        return talk, "pay", {"order": order, "force": True} if retry else {"order": order}

    tools = {"pay": {"type": "object", "properties": {"order": TEXT, "force": {"type": "boolean"}}}}
    memory, rng = taught(kind, tools), random.Random(1)
    tasks = [kind(rng, begun(99, tools)) for _ in range(ASKED)]
    assert [top(memory, task) for task in tasks] == [task[2] for task in tasks]


@pytest.mark.parametrize("count", [13, 14, 15, 40])
def test_a_call_of_many_arguments_is_whole_or_not_made(count: int) -> None:
    def kind(rng: random.Random, talk: Talk) -> Task:
        return talk.user(f"go {word(rng)}"), "wide", {name: f"value of {name}" for name in names}

    names = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(count)]
    tools = {"wide": {"type": "object", "properties": dict.fromkeys(names, TEXT)}}
    memory = taught(kind, tools, scope="s")
    for one in due(memory, kind(random.Random(1), begun(99, tools, "s"))):
        assert [*one.call.arguments] == names


def test_where_the_names_of_arguments_are_data_no_call_is_made_up() -> None:
    def kind(rng: random.Random, talk: Talk) -> Task:
        return talk.user(f"go {word(rng)}"), "set", {code(rng): word(rng)}

    assert due(taught(kind, {}), kind(random.Random(1), begun(99))) == []


def test_probabilities_of_calls_are_probabilities_and_the_best_comes_first() -> None:
    for kind in (the_next_of_a_list, two_fields_of_one_record, records_with_some_fields):
        made = due(taught(kind, {}), kind(random.Random(5), begun(99)))
        assert sorted(made, key=lambda one: -one.chance) == made
        assert made[0].chance > 0.0 and sum(one.chance for one in made) <= 1.0 + 1e-5
        assert len({repr(one.call) for one in made}) == len(made)
