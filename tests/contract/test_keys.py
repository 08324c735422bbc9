"""When are two calls the same? Predictions are JSON, claims are Python objects; both sides must agree."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from agentspec.errors import ToolRefused
from agentspec.signature import Signature
from tests.contract.bookings import BOOK, as_json, book, bookings, complete


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
