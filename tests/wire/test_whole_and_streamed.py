"""The same answer, streamed and whole, says the same."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentspec.events import AnswerBegan, CallNamed
from tests.wire.answers import expected, heard
from tests.wire.dialects import Dialect
from tests.wire.streams import answers

slow_is_fine = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))


@given(data=st.data())
@slow_is_fine
def test_streamed_and_whole_agree(dialect: Dialect, data: st.DataObject) -> None:
    answer = data.draw(answers(dialect))
    stream = dialect.api.open_stream()
    streamed = [*stream.feed(dialect.stream(answer)), *stream.finish()]
    whole = dialect.api.read_answer(dialect.whole(answer))
    told, also = heard(streamed), heard(whole)
    assert told == also
    wanted = expected(answer)
    assert (also.text, also.reasoning, also.calls, also.usage) == (
        wanted.text,
        wanted.reasoning,
        wanted.calls,
        wanted.usage,
    )
    began = [[event.id for event in events if isinstance(event, AnswerBegan)] for events in (streamed, whole)]
    assert began[0] == began[1]


@given(data=st.data())
@slow_is_fine
def test_calls_come_in_the_order_in_which_they_were_made(dialect: Dialect, data: st.DataObject) -> None:
    answer = data.draw(answers(dialect))
    events = dialect.api.read_answer(dialect.whole(answer))
    assert [event.id for event in events if isinstance(event, CallNamed)] == [part.id for part in answer.calls]
