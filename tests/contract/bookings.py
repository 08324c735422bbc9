"""A tool with arguments of many types, and strategies for its calls."""

from __future__ import annotations

import datetime as dt
import enum
import json
import uuid
from typing import Any, Literal

from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

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
