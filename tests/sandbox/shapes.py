"""What the tools of the conformance suite take, return and raise."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
import zoneinfo
from typing import Any, NamedTuple

import pydantic


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Item:
    name: str
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


@dataclasses.dataclass
class Basket:
    items: dict[str, Item]
    colour: Colour


class Order(pydantic.BaseModel):
    id: int
    placed: datetime.datetime
    price: decimal.Decimal
    lines: list[Item] = []
    note: str | None = None


class Pair(NamedTuple):
    left: int
    right: str


class Refusal(Exception):
    """An error whose constructor takes something else than what it keeps as `args`."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Empty(Refusal):
    """A subclass, with nothing of its own."""


class Mute(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


NOON = datetime.datetime(2026, 1, 2, 12, 30, 15, 123456, tzinfo=datetime.UTC)

JSON_RESULTS: dict[str, Any] = {
    "None": None,
    "true": True,
    "zero": 0,
    "one": 1,
    "float": 0.1,
    "whole float": 1.0,
    "negative zero": -0.0,
    "big integer": 7**400,
    "text": "hello",
    "empty text": "",
    "empty list": [],
    "empty dict": {},
    "nested": {"a": [1, {"b": [None, True, [[]]]}], "": {"c": "d"}},
    "unicode": "žluťoučký 中文 \U0001f600 \u2028\u0000\x1b[31m",
    "lone surrogate": "half a pair: \ud83d",
}
"""What any tool may return, by the name of the check."""

PYTHON_RESULTS: dict[str, Any] = {
    "tuple": (1, "two"),
    "tuples in lists": [(1, 2), [1, 2], ((),)],
    "number keys": {1: "a", 2.5: "b", None: "c", False: "d"} | {(1, 2): "e"},
    "set": {1, "two", None},
    "frozenset": frozenset({1, 2}),
    "bytes": bytes(range(256)),
    "bytearray": bytearray(b"\x00\xff"),
    "integer of 6000 digits": 10**6000 + 7,
    "NaN": float("nan"),
    "infinity": [float("inf"), float("-inf")],
    "complex": 1 - 2j,
    "datetime": NOON,
    "naive datetime": NOON.replace(tzinfo=None, fold=1),
    "datetime with an offset": NOON.astimezone(datetime.timezone(datetime.timedelta(hours=5, minutes=30))),
    "date": NOON.date(),
    "time": NOON.timetz(),
    "timedelta": datetime.timedelta(days=-3, microseconds=1),
    "Decimal": [decimal.Decimal("1.10"), decimal.Decimal("NaN"), decimal.Decimal("-0")],
    "UUID": uuid.UUID("12345678-1234-5678-1234-567812345678"),
    "Path": pathlib.Path("/tmp/a b/../c"),
    "PurePath": pathlib.PureWindowsPath("C:\\x"),
    "Enum": Colour.RED,
    "IntEnum": [Level.HIGH, 2],
    "StrEnum": [Word.YES, "yes"],
    "Flag": Rights.READ | Rights.WRITE,
    "dataclass": Item("pen", ["blue"]),
    "frozen dataclass with slots": Point(0.5, float("inf")),
    "nested dataclasses": Basket({"a": Item("pen")}, Colour.BLUE),
    "pydantic model": Order(id=1, placed=NOON, price=decimal.Decimal("9.90"), lines=[Item("pen")]),
    "models in a dict": {"orders": [Order(id=2, placed=NOON, price=decimal.Decimal(1), note="\ud83d")]},
}
"""What a tool may return besides, and the caller gets with its very types."""


def _itself() -> list[Any]:
    loop: list[Any] = [1]
    loop.append(loop)
    return loop


UNUSUAL_RESULTS: dict[str, Any] = {
    "namedtuple": Pair(1, "two"),
    "OrderedDict": collections.OrderedDict(b=1, a=2),
    "defaultdict": collections.defaultdict(list, {"a": [1]}),
    "Counter": collections.Counter("hello"),
    "deque": collections.deque([1, 2], maxlen=2),
    "Fraction": fractions.Fraction(1, 3),
    "range": range(1, 9, 2),
    "ellipsis": ...,
    "slice": slice(1, 2),
    "zone": zoneinfo.ZoneInfo("UTC"),
    "datetime in a zone": NOON.astimezone(zoneinfo.ZoneInfo("UTC")),
    "list in itself": _itself(),
    "exception as a value": ValueError("a", 1),
    "memoryview": memoryview(b"abc"),
    "a class": Item,
    "a function": dataclasses.replace,
}
"""What may come back exactly, or end in an error: never as something else."""

ERRORS: dict[str, BaseException] = {
    "ValueError": ValueError("wrong", 1, None),
    "no message": RuntimeError(),
    "KeyError": KeyError("missing"),
    "OSError": FileNotFoundError(2, "No such file", "/nowhere"),
    "UnicodeDecodeError": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "StopIteration": StopIteration(3),
    "lone surrogate": ValueError("half: \ud83d"),
    "typed arguments": ValueError(Colour.RED, decimal.Decimal("1.5")),
    "long message": ValueError("x" * 3_000_000),
    "own class": Refusal(7, detail="no stock"),
    "own subclass": Empty(8, detail="none"),
}
"""What a tool may raise, and the caller gets with type, arguments and attributes."""
