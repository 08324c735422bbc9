"""Conformance: what a tool raises reaches the caller as a plain call's would, and no way to end harms the caller."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from tests.sandbox import process_attacks, shapes, tools
from tests.sandbox.support import EVERYWHERE, ISOLATED, eventually, gone


@EVERYWHERE
@pytest.mark.parametrize("name", shapes.ERRORS)
def test_an_exception_keeps_type_arguments_and_attributes(place: Any, name: str) -> None:
    error, expected = place.run(tools.fail, name=name).error, shapes.ERRORS[name]
    assert type(error) is type(expected)
    assert error.args == expected.args
    assert str(error) == str(expected)
    public = {key: value for key, value in vars(expected).items() if not key.startswith("_")}
    assert {key: vars(error).get(key) for key in public} == public


@EVERYWHERE
def test_an_os_error_keeps_its_number_and_file(place: Any) -> None:
    error = place.run(tools.read, path="/nowhere/at all").error
    assert isinstance(error, FileNotFoundError)
    assert (error.errno, error.filename) == (2, "/nowhere/at all")


@EVERYWHERE
def test_an_exception_with_a_cause_and_a_note_arrives(place: Any) -> None:
    error = place.run(tools.fail_because).error
    assert (type(error), error.args) == (ValueError, ("second",))


@EVERYWHERE
def test_an_exception_group_arrives_with_its_members(place: Any) -> None:
    error = place.run(tools.fail_together).error
    assert isinstance(error, ExceptionGroup)
    assert error.message == "several"
    one, more = error.exceptions
    assert (type(one), one.args) == (ValueError, ("one",))
    assert isinstance(more, ExceptionGroup)
    assert isinstance(more.exceptions[0], shapes.Refusal)


@EVERYWHERE
def test_an_async_tools_exception_arrives(place: Any) -> None:
    error = place.run(tools.fail_soon).error
    assert isinstance(error, shapes.Refusal)
    assert (error.code, error.detail) == (7, "no stock")


@EVERYWHERE
@pytest.mark.parametrize("how", ["local class", "mute", "luggage"])
def test_an_exception_that_cannot_travel_is_still_an_error(place: Any, how: str) -> None:
    assert isinstance(place.run(tools.fail_unspeakably, how=how).error, Exception)


@EVERYWHERE
def test_a_models_validation_error_is_an_error_that_says_so(place: Any) -> None:
    error = place.run(tools.validate, text="three").error
    assert isinstance(error, pydantic.ValidationError) or "ValidationError" in f"{type(error).__name__}: {error}"


@EVERYWHERE
@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_an_exit_or_interrupt_in_a_tool_ends_only_the_run(place: Any, kind: str) -> None:
    assert place.run(process_attacks.interrupt, kind=kind).error is not None
    assert place.run(tools.echo, value=1).value() == 1


@EVERYWHERE
def test_endless_recursion_is_an_error(place: Any) -> None:
    assert isinstance(place.run(tools.recurse).error, Exception)
    assert place.run(tools.echo, value=1).value() == 1


@ISOLATED
@pytest.mark.parametrize(
    "how",
    [
        "sys.exit",
        "os._exit(0)",
        "os._exit(3)",
        "abort",
        "segmentation fault",
        "killed by itself",
        "replaced by a program",
        "exit in a thread",
    ],
)
def test_a_run_that_ends_without_a_result_is_an_error_at_once(place: Any, how: str) -> None:
    started = place.start(process_attacks.end, how=how)
    outcome = started.wait(5.0)
    assert outcome.error is not None
    assert not isinstance(outcome.error, TimeoutError), "its end went unnoticed"
    eventually(lambda: gone(started.pid), "the process is gone")
    started.cancel()
    assert place.run(tools.echo, value=1).value() == 1
