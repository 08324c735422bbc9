"""Which point of which recording a request stands at. Stateless: the request's own messages say it all.

1. A conversation is reduced to what the agent cannot vary: user texts, model texts, called names with parsed arguments,
   results in the order of their calls. System prompts, call ids and reasoning do not count.
2. Each prefix has a digest, chained message by message; an index knows the recorded points with that digest.
3. `model` naming a recording narrows the choice to it; else every recording counts. Points that go on alike are one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from agentspec.errors import RequestError
from agentspec.proxy.replay.recordings import Call, Recording, Step

_ROOT = b""
_UNCOUNTED = ("system", "developer")


@dataclass(frozen=True)
class Point:
    """A place in a recording where the model speaks next."""

    recording: Recording
    at: int

    @property
    def answer(self) -> Step:
        """What the model said there."""
        return self.recording.steps[self.at]


class Index:
    """All points of all recordings, found by the conversation that leads to them."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        self.models: dict[str, Recording] = {recording.model: recording for recording in recordings}
        self._points: dict[bytes, list[Point]] = {}
        for recording in self.models.values():
            for at, digest in enumerate(_digests(_recorded(recording.steps))):
                if at < len(recording.steps) and recording.steps[at].role == "assistant":
                    self._points.setdefault(digest, []).append(Point(recording, at))

    def find(self, model: str, messages: Sequence[dict[str, Any]]) -> Point:
        """The recorded point that this conversation leads to.

        Raises:
            RequestError: 404 where nothing was recorded for it, 400 where recordings differ in how it goes on or a
                message has no known shape.
        """
        points = self._points.get(_last(_digests(_requested(messages))), [])
        if model in self.models:
            points = [point for point in points if point.recording.model == model]
        if not points:
            raise RequestError(
                f"no recorded answer follows these {len(messages)} messages (model {model!r}); "
                "send the recorded messages unchanged, or list the recordings with GET /v1/models",
                code="conversation_not_recorded",
                status=404,
            )
        if any(_said(point.answer) != _said(points[0].answer) for point in points):
            raise RequestError(
                f"{len(points)} recordings begin like this and go on differently; name one as `model`",
                code="conversation_ambiguous",
            )
        return points[0]


def _said(step: Step) -> tuple[object, ...]:
    return step.content or "", step.reasoning or "", step.calls


def _recorded(steps: Sequence[Step]) -> Iterator[object]:
    for step in steps:
        if step.role == "tool":
            yield "tool", step.tool_result
        else:
            yield _spoken(step.role, step.content, step.calls)


def _spoken(role: str, text: str | None, calls: Iterable[Call]) -> object:
    return role, text or "", [(call.name, call.arguments) for call in calls]


def _requested(messages: Sequence[dict[str, Any]]) -> Iterator[object]:
    """The same reduction for a request, results put into the order of the calls they answer."""
    order: dict[str, int] = {}
    results: list[tuple[int, str]] = []
    for message in messages:
        role = message.get("role")
        if role == "tool":
            place = order.get(str(message.get("tool_call_id")), len(order) + len(results))
            results.append((place, _text(message.get("content"))))
            continue
        yield from _in_order(results)
        results = []
        if role in _UNCOUNTED:
            continue
        calls = _calls(message)
        order = {call.id: place for place, call in enumerate(calls)}
        yield _spoken(str(role), _text(message.get("content")), calls)
    yield from _in_order(results)


def _in_order(results: list[tuple[int, str]]) -> Iterator[object]:
    for _, text in sorted(results, key=lambda result: result[0]):
        yield "tool", text


def _calls(message: dict[str, Any]) -> list[Call]:
    try:
        return [
            Call(
                call["function"]["name"],
                msgspec.json.decode(call["function"]["arguments"] or "{}", type=dict[str, Any]),
                call.get("id", ""),
            )
            for call in message.get("tool_calls") or ()
        ]
    except (KeyError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        raise RequestError(f"a message's tool_calls cannot be read: {error!r}") from error


def _text(content: Any) -> str:
    """A message's text, given plain or in parts."""
    if content is None or isinstance(content, str):
        return content or ""
    try:
        return "".join(part["text"] for part in content)
    except (KeyError, TypeError) as error:
        raise RequestError("a recording holds text only; this message has a part without `text`") from error


def _digests(messages: Iterable[object]) -> Iterator[bytes]:
    """The digest of each prefix, the empty one first."""
    digest = _ROOT
    yield digest
    for message in messages:
        digest = hashlib.sha256(digest + msgspec.json.encode(message, order="sorted")).digest()
        yield digest


def _last(digests: Iterator[bytes]) -> bytes:
    *_, last = digests
    return last
