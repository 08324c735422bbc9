"""Copies of results: text, small, or none at all; never in the way of the result itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from agentspec.tools_sandbox.copies import MAX_COPY_BYTES, copy_of


class Order(BaseModel):
    id: str
    items: list[int]


@dataclass
class Seat:
    row: int


class Odd:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("hands off")


@pytest.mark.parametrize(
    ("result", "copy"),
    [
        ("text as it is", "text as it is"),
        ({"a": [1, 2.5, None]}, '{"a":[1,2.5,null]}'),
        (Order(id="A", items=[1]), '{"id":"A","items":[1]}'),
        ([Seat(3)], '[{"row":3}]'),
        (object(), None),
        (Odd(), None),
        ("x" * (MAX_COPY_BYTES + 1), None),
        ("half an emoji \ud83d", None),
        (list(range(100_000)), None),
    ],
)
def test_what_is_told_of_a_result(result: Any, copy: str | None) -> None:
    assert copy_of(result) == copy
