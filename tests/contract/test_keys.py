"""When are two calls the same? Predictions are JSON, claims are Python objects; both sides must agree."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import math
import uuid
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, TypeAdapter

from agentspec.calls import ToolCall, canonical_arguments, canonical_json, same_call
from agentspec.errors import ToolRefused
from agentspec.signature import Signature


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    street: str
    zip: str | None = None
    tags: list[str] = []


class Order(BaseModel):
    id: int
    price: float = 0.0
    color: Color = Color.RED
    due: dt.datetime | None = None
    to: Address | None = None


def book(
    order: Order,
    level: Level,
    day: dt.date,
    count: int = 1,
    weight: float = 2.5,
    note: str = "",
    kind: Literal["a", "b"] = "a",
    parts: dict[str, list[float]] = {},  # noqa: B006
    ident: uuid.UUID | None = None,
) -> str:
    return ""


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
whole = st.integers(-(2**53), 2**53)
finite = st.floats(allow_nan=False, allow_infinity=False)
addresses = st.builds(Address, street=texts, zip=st.none() | texts, tags=st.lists(texts, max_size=2))
moments = st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2200, 1, 1), timezones=st.none() | st.just(dt.UTC))
orders = st.builds(
    Order, id=whole, price=finite, color=st.sampled_from(Color), due=st.none() | moments, to=st.none() | addresses
)
bookings = st.fixed_dictionaries(
    {"order": orders, "level": st.sampled_from(Level), "day": st.dates(dt.date(1900, 1, 1))},
    optional={
        "count": whole | st.just(1),
        "weight": finite | st.just(2.5),
        "note": texts,
        "kind": st.sampled_from(["a", "b"]),
        "parts": st.dictionaries(texts, st.lists(finite, max_size=2), max_size=2),
        "ident": st.none() | st.uuids(),
    },
)
BOOK = Signature(book)
BOOKING: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


def as_json(values: Any) -> Any:
    """What a model would have written for these arguments."""
    return json.loads(json.dumps(BOOKING.dump_python(values, mode="json")))


def complete(values: dict[str, Any]) -> dict[str, Any]:
    return BOOK.bind((), values)


@given(bookings)
def test_a_prediction_and_the_claim_it_foresaw_have_one_key(values):
    predicted = BOOK.of_prediction(as_json(values))
    claimed = BOOK.of_claim(complete(values))
    assert predicted.key == claimed.key
    assert predicted.validated == claimed.validated
    assert predicted.form == claimed.form


@given(bookings, bookings)
def test_claims_that_differ_never_have_one_key_and_equal_values(one, other):
    first, second = BOOK.of_claim(complete(one)), BOOK.of_claim(complete(other))
    same = complete(one) == complete(other)
    assert (first.key == second.key and first.validated == second.validated) <= same


@given(bookings, st.randoms())
def test_order_and_position_do_not_matter(values, dice):
    names = list(values)
    dice.shuffle(names)
    by_name = BOOK.of_claim(BOOK.bind((), {name: values[name] for name in names}))
    rest = {name: values[name] for name in names if name not in ("order", "level", "day")}
    by_position = BOOK.of_claim(BOOK.bind((values["order"], values["level"], values["day"]), rest))
    assert by_name == by_position


@given(bookings)
def test_an_omitted_argument_is_its_default(values):
    bare = {name: values[name] for name in ("order", "level", "day")}
    full = bare | {"count": 1, "weight": 2.5, "note": "", "kind": "a", "parts": {}, "ident": None}
    assert BOOK.of_prediction(as_json(bare)) == BOOK.of_prediction(as_json(full))
    assert BOOK.of_claim(complete(bare)) == BOOK.of_claim(complete(full))


@given(bookings)
def test_a_runs_arguments_call_the_function_as_the_claim_would(values):
    predicted = BOOK.of_prediction(as_json(values))
    bound = BOOK.bind((), predicted.validated)
    assert bound == complete(values)
    assert {k: type(v) for k, v in bound.items()} == {k: type(v) for k, v in complete(values).items()}


def key(function: Any, **arguments: Any) -> str:
    return Signature(function).of_prediction(arguments).key


def scale(x: float, unit: str = "kg") -> float:
    return x


def test_numbers_texts_and_defaults():
    assert key(scale, x=3) == key(scale, x=3.0) == key(scale, x=3, unit="kg")
    assert key(scale, x=3) != key(scale, x=3.5)
    assert key(scale, x=3, unit="kg ") != key(scale, x=3, unit="kg")
    assert key(scale, x=3, unit="KG") != key(scale, x=3, unit="kg")
    assert key(scale, x=3, unit="") != key(scale, x=3)
    assert key(scale, x=3, unit="é") != key(scale, x=3, unit="e\u0301")  # looks the same, is not


def flags(on: bool = False, count: int = 0, any_: Any = None, ratio: float = 0.0) -> None:
    return None


def test_true_is_not_one_and_nothing_is_not_false():
    signature = Signature(flags)
    keys = [signature.of_claim(signature.bind((), given)).key for given in (
        {"any_": 1}, {"any_": True}, {"any_": "1"}, {"any_": 1.0}, {"any_": None}, {"any_": False}, {"any_": ""},
        {"any_": []}, {"any_": {}}, {"any_": [None]}, {"any_": "null"}, {"count": 1}, {"on": True}, {"ratio": 1.0},
    )]  # fmt: skip
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("function", "bad"),
    [
        (scale, {"x": "three"}),
        (scale, {}),
        (scale, {"x": 1, "y": 2}),
        (scale, {"x": None}),
        (flags, {"count": 1.5}),
        (book, {"order": {"id": "x"}, "level": 1, "day": "2024-01-01"}),
        (book, {"order": {"id": 1}, "level": 7, "day": "2024-01-01"}),
    ],
)
def test_a_prediction_that_does_not_fit_is_refused(function, bad):
    with pytest.raises(ToolRefused):
        Signature(function).of_prediction(bad)


NO_PIN = SecretStr("0")


class Login(BaseModel):
    name: str
    password: SecretStr
    token: str = Field("", exclude=True)


def enter(login: Login, pin: SecretStr = NO_PIN) -> str:
    return ""


def arguments_of(function: Any, **given: Any) -> Any:
    signature = Signature(function)
    return signature.of_claim(signature.bind((), given))


def same(one: Any, other: Any) -> bool:
    """As the claim table compares."""
    return one.key == other.key and one.validated == other.validated


def test_secrets_and_hidden_fields_tell_calls_apart():
    base = arguments_of(enter, login=Login(name="a", password=SecretStr("1"), token="t"))
    assert same(base, arguments_of(enter, login=Login(name="a", password=SecretStr("1"), token="t")))
    assert not same(base, arguments_of(enter, login=Login(name="a", password=SecretStr("2"), token="t")))
    assert not same(base, arguments_of(enter, login=Login(name="a", password=SecretStr("1"), token="u")))
    pin = arguments_of(enter, login=Login(name="a", password=SecretStr("1"), token="t"), pin=SecretStr("9"))
    assert not same(base, pin)
    assert "1" not in base.key.replace("*", "")


def test_equal_sets_are_equal_in_whatever_order_they_were_filled():
    def use(numbers: set[int]) -> str:
        return ""

    predicted = Signature(use).of_prediction({"numbers": [8, 0, 16]})
    assert same(predicted, arguments_of(use, numbers={0, 8, 16}))


def test_values_that_json_cannot_tell_apart_are_told_apart():
    def use(when: dt.datetime, amount: decimal.Decimal, raw: bytes = b"") -> str:
        return ""

    zone = dt.timezone(dt.timedelta(hours=2))
    noon = dt.datetime(2024, 1, 1, 12)
    variants = [
        arguments_of(use, when=noon, amount=decimal.Decimal("1")),
        arguments_of(use, when=noon.replace(tzinfo=dt.UTC), amount=decimal.Decimal("1")),
        arguments_of(use, when=noon.replace(tzinfo=zone, hour=14), amount=decimal.Decimal("1")),
        arguments_of(use, when=noon, amount=decimal.Decimal("1.0")),
        arguments_of(use, when=noon.replace(microsecond=1), amount=decimal.Decimal("1")),
        arguments_of(use, when=noon, amount=decimal.Decimal("1"), raw=b"1"),
    ]
    assert [(i, j) for i, a in enumerate(variants) for j, b in enumerate(variants) if i < j and same(a, b)] == []


def test_an_object_without_a_json_form_has_no_key():
    def use(thing: Any) -> str:
        return ""

    with pytest.raises(ToolRefused):
        arguments_of(use, thing=object())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_a_number_never_matches_by_accident(value):
    assert not same(arguments_of(scale, x=value), arguments_of(scale, x=0.0))
    assert not same(arguments_of(scale, x=value), arguments_of(scale, x=1e308))


def bounded(x: Annotated[int, Field(ge=0)] = Field(3), names: list[str] = Field(default_factory=list)) -> None:  # noqa: B008
    return None


def test_fields_as_defaults_mean_their_defaults():
    signature = Signature(bounded)
    assert signature.of_claim(signature.bind((), {})) == signature.of_prediction({"x": 3, "names": []})
    assert signature.json_schema()["properties"]["x"]["default"] == 3
    with pytest.raises(ToolRefused):
        signature.of_prediction({"x": -1})


# The rules of plain JSON, which the proxy uses on both guesses and relayed calls

json_values = st.recursive(
    st.none() | st.booleans() | whole | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, json_values, max_size=4)


@given(objects, st.randoms())
def test_canonical_arguments_do_not_depend_on_order(value, dice):
    items = list(value.items())
    dice.shuffle(items)
    assert canonical_arguments(dict(items)) == canonical_arguments(value)
    assert json.loads(canonical_arguments(value)) == value


@given(objects, objects)
def test_other_arguments_are_another_call(one, other):
    assert same_call(ToolCall("t", one), ToolCall("t", other)) == (canonical_json(one) == canonical_json(other))
    assert not same_call(ToolCall("t", one), ToolCall("u", one))


@given(bookings)
def test_the_proxy_agrees_with_the_runtime_that_a_guess_is_the_call(values):
    """With and without its defaults, under the schema that the runtime sent."""
    schema = BOOK.json_schema()
    full = as_json(complete(values))
    bare = {name: value for name, value in as_json(values).items()}
    assert same_call(ToolCall("book", bare), ToolCall("book", full), schema)


@given(bookings, bookings)
def test_the_proxy_never_takes_a_guess_for_another_call(one, other):
    schema = BOOK.json_schema()
    says = same_call(ToolCall("book", as_json(one)), ToolCall("book", as_json(other)), schema)
    assert says <= (BOOK.of_prediction(as_json(one)).key == BOOK.of_prediction(as_json(other)).key)
