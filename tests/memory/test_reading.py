"""Values in what was said: whatever the text or JSON, they are found with their place, and never too many of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.memory.reading import (
    DAY,
    MAX_DEPTH,
    MAX_LEAVES,
    MAX_WORDS,
    RECORD,
    RECORDS,
    SCALAR,
    SCALARS,
    Found,
    json_values,
    parsed_json,
    shape,
    text_values,
)
from agentspec.memory.table import key_of_value

PER_WORD = 5
"""A word may be found as itself, as a number, as a day, within quotes, and at the end of a run."""
MOST = MAX_LEAVES * 4
WORDS_IN_RESULTS = 10_000

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.text("a1 \ud800'\"", max_size=60),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=6), inner, max_size=6),
    max_leaves=60,
)


def result_values(text: str, source: str) -> list[Found]:
    parsed = parsed_json(text)
    return list(text_values(text, source) if parsed is None else json_values(parsed, source))


def places(value: Any) -> set[str]:
    return {found.path for found in json_values(value, "f") if found.form == SCALAR}


def texts(text: str, mark: str = "") -> list[Any]:
    """What is found in a text; `mark`: what the path ends in, e.g. `^` for runs of capitalised words."""
    return [found.value for found in text_values(text, "u") if found.path == "u" + mark]


@given(anything)
@settings(max_examples=150, deadline=None)
def test_any_json_is_read(value: Any) -> None:
    found = list(json_values(value, "f"))
    assert list(map(repr, found)) == list(map(repr, json_values(value, "f")))
    for one in found:
        assert one.value is not None and one.path.startswith("f") and isinstance(one.key, str)
        assert one.form in (SCALAR, SCALARS, RECORD, RECORDS, DAY) and one.record >= 0
        assert isinstance(one.value, (dict, list)) == (one.form in (SCALARS, RECORD, RECORDS))
        assert isinstance(key_of_value(one.value), str) and isinstance(shape(one.value), str)


@given(anything)
@settings(max_examples=150, deadline=None)
def test_a_result_is_read_as_the_json_that_it_is(value: Any) -> None:
    said = result_values(f" {json.dumps(value)}\n", "f")
    meant = [] if value is None else list(json_values(value, "f"))
    assert value is None or list(map(repr, said)) == list(map(repr, meant))


@given(st.text() | st.text(st.characters(codec=None)) | st.text("aA1#~@$\"'`.,/- é٣²\n\ud800", max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read(text: str) -> None:
    for found in [*text_values(text, "u"), *result_values(text, "u")]:
        assert isinstance(key_of_value(found.value), str) and found.path.startswith("u")


@pytest.mark.parametrize(
    "value",
    [
        [1] * 5000, [{}] * 50_000, [[]] * 50_000, [[[]]] * 20_000, {f"k{i}": None for i in range(50_000)},
        {f"k{i}": {} for i in range(20_000)}, {f"name {i}": [i] for i in range(20_000)}, [{"a": {}}] * 20_000,
        [{"a": [{"b": [{}] * 30}] * 30}] * 60, [["x", "y"]] * 20_000,
    ],
    ids=["leaves", "objects", "lists", "deep lists", "ids", "objects by id", "lists by id", "nested", "wide", "pairs"],
)  # fmt: skip
def test_no_json_has_too_many_values(value: Any) -> None:
    assert len(list(json_values(value, "f"))) <= MOST


def test_many_long_strings_have_not_too_many_words() -> None:
    assert len(list(json_values(["lorem ipsum " * 60] * 400, "f"))) <= WORDS_IN_RESULTS


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    ["x", "9", "#", "~", "@", "a#", "@~#/", '"', "'", "`", "$", "$1,", "A ", "1.", " ", "\n", "é", "\ud800", "word ",
     "-", "a-", "'a ", '"x\n', "May 1 ", "٣", "#A~"],
)  # fmt: skip
def test_a_text_of_a_megabyte_is_read_in_bounded_time_and_count(text: str) -> None:
    long = text * (1_000_000 // len(text))
    assert len(list(text_values(long, "u"))) <= PER_WORD * MAX_WORDS
    assert len(list(json_values([long], "f"))) <= PER_WORD * MAX_WORDS + 2


@pytest.mark.parametrize(
    "text", ["7" * 5000, "-" + "7" * 5000, "7" * 5000 + ".5", "1e999", "[" + "7" * 5000 + "]", "May " + "3" * 5000]
)
def test_numbers_of_any_length_are_read(text: str) -> None:
    for found in [*text_values(text, "u"), *result_values(text, "u")]:
        assert key_of_value(found.value)


@pytest.mark.parametrize("depth", [5, 50, 500, 5000, 100_000])
def test_json_of_any_depth_is_read_to_a_bounded_one(depth: int) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")):
        found = result_values(opening * depth + "1" + closing * depth, "f")
        assert len(found) <= MOST
        assert all(one.path.count(".a") <= MAX_DEPTH + 1 for one in found)
        assert all(key_of_value(one.value) for one in found)


def test_places_are_generalised_over_lists() -> None:
    assert places({"orders": [{"id": 1, "items": [{"sku": "a"}, {"sku": "b"}]}, {"id": 2}]}) == {
        "f.orders[].id",
        "f.orders[].items[].sku",
    }


def test_the_same_place_under_other_ids_is_the_same() -> None:
    one, two = {"W12": {"status": "a"}, "W13": {"status": "b"}}, {"X99": {"status": "c"}}
    assert places(one) == places(two)
    assert {"W12", "W13"} <= {found.value for found in json_values(one, "f") if found.form == SCALAR}
    assert len(places({f"item {i}": {"v": i} for i in range(9)})) == 2


def test_a_digit_in_a_field_name_hides_no_names() -> None:
    address = {"address1": "5 Elm St", "address2": "Suite 3", "city": "Oslo", "country": "Norway", "zip": "0150"}
    keys = {found.value: found.key for found in json_values({"address": address}, "f") if found.form == SCALAR}
    assert keys["Oslo"] == "city" and keys["0150"] == "zip"


def test_fields_of_one_record_have_its_number() -> None:
    found = {
        one.value: one.record for one in json_values([{"a": "p", "b": "q"}, {"a": "r"}], "f") if one.form == SCALAR
    }
    assert found["p"] == found["q"] != found["r"] and 0 not in found.values()


def test_lists_and_records_are_found_whole() -> None:
    value = {"tags": ["x", "y"], "rows": [{"n": 1}], "one": {"m": 2}, "mixed": [1, {"k": 2}], "none": []}
    forms = {found.key: (found.value, found.form) for found in json_values(value, "f") if found.form != SCALAR}
    assert forms["tags"] == (["x", "y"], SCALARS)
    assert ([{"n": 1}], RECORDS) in [(one.value, one.form) for one in json_values(value, "f")]
    assert forms["one"] == ({"m": 2}, RECORD)
    assert "none" not in forms and (value["mixed"], SCALARS) not in forms.values()


def test_quoted_parts_are_found() -> None:
    assert texts("call it \"Big Sur\", `ls -l` or 'my file' but don't", '"') == ["Big Sur", "ls -l", "my file"]


def test_runs_of_capitalised_words_are_found() -> None:
    assert texts("ask Anna Maria Berg or Élodie Dupont about it", "^") == ["Anna Maria Berg", "Élodie Dupont"]
    assert texts("from New York", "^") == ["New York"]


def test_money_and_numbers_are_numbers() -> None:
    assert texts("pay $1,234.50 or 7 or 1,000 or $ 3", "0") == [1234.5, 7, 1000, 3]


@pytest.mark.parametrize(("text", "day"), [("on May 17", "05-17"), ("by December 3rd", "12-03"), ("sept 1st", "09-01")])
def test_days_are_found(text: str, day: str) -> None:
    assert texts(text, "-") == [day]


@pytest.mark.parametrize("text", ["May 32", "May 0", "Smay 3", "May 1.5", "in 17"])
def test_what_is_no_day_is_none(text: str) -> None:
    assert texts(text, "-") == []


def test_ids_mails_and_paths_stay_whole() -> None:
    said = texts("see #W5918442, anna_berg@mail.com, /usr/lib/x.py and https://a.org/b.")
    for word in ("W5918442", "#W5918442", "anna_berg@mail.com", "/usr/lib/x.py", "https://a.org/b"):
        assert word in said


def test_a_word_knows_what_stands_before_it() -> None:
    found = next(one for one in text_values("my user id is K7", "u") if one.value == "K7")
    assert (found.key, found.before) == ("is", "id is")


@pytest.mark.parametrize("text", ["", " ", "nope", "{bad", "[1,", "'x'", "\x00", "\ud800", "truely"])
def test_what_is_no_json_is_none(text: str) -> None:
    assert parsed_json(text) is None


def test_shapes_tell_kinds_of_values_apart() -> None:
    assert shape("HAT188") == shape("JFK20123") == "A+0+"
    assert len({shape(one) for one in (True, 1, 1.0, "a", [], {}, "1", "A", "a-b")}) == 9
    assert len(shape("x1" * 10_000)) < 50


def test_lists_of_more_than_a_screenful_are_not_found_whole() -> None:
    assert not [one for one in json_values({"l": [1] * 1000}, "f") if one.form != SCALAR]
    assert isinstance(next(json_values([1], "f")), Found)
