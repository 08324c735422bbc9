"""A stream says the same wherever the network cut it, and what the answer said, whatever stands between."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentspec.events import CallComplete, TurnEvent
from tests.wire.answers import CALL, Part, expected, heard
from tests.wire.dialects import Dialect, frame
from tests.wire.streams import answers, cut, cuts, noise, streams

slow_is_fine = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))


def tell(dialect: Dialect, chunks: list[bytes]) -> list[TurnEvent]:
    stream = dialect.api.open_stream()
    events = [event for chunk in chunks for event in stream.feed(chunk)]
    return [*events, *stream.finish()]


@given(data=st.data(), at=cuts)
@slow_is_fine
def test_cuts_change_nothing_and_nothing_is_lost(dialect: Dialect, data: st.DataObject, at: list[int]) -> None:
    answer = data.draw(answers(dialect))
    stream = data.draw(streams(dialect, answer))
    whole = tell(dialect, [stream])
    assert tell(dialect, cut(stream, at)) == whole
    told, wanted = heard(whole), expected(answer)
    assert (told.text, told.reasoning, told.calls) == (wanted.text, wanted.reasoning, wanted.calls)
    assert (told.usage, told.reason is None) == (wanted.usage, False)


@given(data=st.data())
@slow_is_fine
def test_every_single_byte_on_its_own_is_as_good_as_the_whole(dialect: Dialect, data: st.DataObject) -> None:
    stream = data.draw(streams(dialect, data.draw(answers(dialect))))
    assert tell(dialect, [stream[at : at + 1] for at in range(len(stream))]) == tell(dialect, [stream])


@given(data=st.data())
@slow_is_fine
def test_a_call_is_told_with_the_event_that_closes_its_json(dialect: Dialect, data: st.DataObject) -> None:
    answer = data.draw(answers(dialect).filter(lambda answer: any(part.kind == CALL for part in answer.parts)))
    stream = dialect.api.open_stream()
    written = dict.fromkeys((part.id for part in answer.calls if part.kind == CALL), "")
    closing = {part.id: part for part in answer.calls if part.kind == CALL}
    told: set[str | None] = set()
    names: dict[object, str] = {}
    for payload in dialect.payloads(answer):
        events = stream.feed(frame(payload))
        told |= {event.call.id for event in events if isinstance(event, CallComplete) and event.call}
        grown = _grown(dialect, payload, answer.calls, names)
        if grown is not None and grown[0] in written:
            written[grown[0]] += grown[1]
        due = {key for key, part in closing.items() if written[key] == part.whole}
        assert due <= told, f"closed and not told: {due - told}"
        assert told <= due, f"told before they closed: {told - due}"


def _grown(dialect: Dialect, payload: object, calls: list[Part], names: dict[object, str]) -> tuple[str, str] | None:
    """Which call's arguments a payload continues, and by what."""
    if not isinstance(payload, dict):
        return None
    if dialect.api.name == "chat":
        fragments = [f for choice in payload["choices"] for f in choice["delta"].get("tool_calls", [])]
        return next(((calls[f["index"]].id, f.get("function", {}).get("arguments", "")) for f in fragments), None)
    return _block_grown(payload, names)


def _block_grown(payload: dict[str, object], names: dict[object, str]) -> tuple[str, str] | None:
    """The same for APIs that name a call once and then by its place."""
    place = payload.get("index", payload.get("output_index"))
    opened = payload.get("content_block") or payload.get("item")
    if isinstance(opened, dict) and payload["type"] in ("content_block_start", "response.output_item.added"):
        names[place] = str(opened.get("call_id") or opened.get("id"))
    delta = payload.get("delta")
    if payload.get("type") == "response.function_call_arguments.delta":
        return names[place], str(delta)
    if isinstance(delta, dict) and delta.get("type") == "input_json_delta":
        return names[place], delta["partial_json"]
    return None


@given(data=st.data(), at=cuts)
@slow_is_fine
def test_a_stream_that_breaks_off_anywhere_ends_once_and_makes_no_half_call(
    dialect: Dialect, data: st.DataObject, at: list[int]
) -> None:
    answer = data.draw(answers(dialect))
    stream = data.draw(streams(dialect, answer))
    broken = stream[: data.draw(st.integers(0, len(stream)))]
    told = heard(tell(dialect, cut(broken, at)))
    wanted = expected(answer).calls
    assert set(told.calls) <= set(wanted)
    for key, (name, arguments) in told.calls.items():
        assert name == wanted[key][0]
        assert arguments in (None, wanted[key][1])


@given(between=st.lists(noise, max_size=8), at=cuts)
@slow_is_fine
def test_noise_says_nothing(dialect: Dialect, between: list[bytes], at: list[int]) -> None:
    told = heard(tell(dialect, cut(b"".join(between), at)))
    assert (told.text, told.reasoning, told.calls) == ("", "", {})
