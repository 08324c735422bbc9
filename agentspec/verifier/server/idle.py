"""Idle-time pre-positioning: while a tool runs, what is already known of its agent's next request is computed.

After an answer that ends in tool calls, the next request of its session is known up to the tool's result: the same
messages, the answer as the template writes it in a history (seldom the tokens that were generated), and the opening of
a result. Two renderings with different results tell where that ends. The work runs when nothing else does, is dropped
when anything arrives, and leaves nothing but keys and values in the cache of prefixes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import Any

from agentspec.errors import RequestError
from agentspec.verifier.engine.interface import Event, Submission, Ticket
from agentspec.verifier.engine.worker import Engine
from agentspec.verifier.server.answer import Choice
from agentspec.verifier.server.request import ChatJob, next_messages
from agentspec.verifier.text import Text
from agentspec.verifier.verification.sampling import SamplingParams

_RESULTS = ("0", "x")
_LAST = (1 << 31) - 1
_SESSIONS = 1024


class Idler:
    """Submits such work, at most one piece for each session."""

    def __init__(self, engine: Engine, text: Text, max_context: int) -> None:
        self._engine = engine
        self._text = text
        self._max_context = max_context
        self._tickets: OrderedDict[str, Ticket] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self.submitted = 0

    def arrived(self, session: str | None) -> None:
        """A request of the session is here: what was computed for it is in the cache, what was not is its own."""
        ticket = self._tickets.pop(session, None) if session is not None else None
        if ticket is not None:
            ticket.cancel()

    def after(self, job: ChatJob, choice: Choice) -> None:
        """An answer of a session has ended. Called on the event loop, which does not wait for the rendering."""
        hints = job.options.hints
        if hints.session is None or not hints.idle or choice.reason != "tool_calls":
            return
        self.arrived(hints.session)
        place = self._tickets[hints.session] = Ticket()
        if len(self._tickets) > _SESSIONS:
            self._tickets.popitem(last=False)
        task = asyncio.get_running_loop().create_task(self._compute(job, choice, place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compute(self, job: ChatJob, choice: Choice, place: Ticket) -> None:
        """Submit the work, unless the session's next request has come, which cancelled `place`."""
        prompt = await asyncio.to_thread(self.known, job, choice)
        session = job.options.hints.session
        if place.cancelled or session is None or not 1 < len(prompt) < self._max_context:
            return
        self.submitted += 1
        ticket = self._engine.submit(_work(prompt, job.options.hints.workspace), _forget)
        if self._tickets.get(session) is place:
            self._tickets[session] = ticket

    def known(self, job: ChatJob, choice: Choice) -> list[int]:
        """The tokens with which the next request will begin, as far as they do not depend on the tool's result."""
        calls: list[dict[str, Any]] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in choice.calls
        ]
        said = {"role": "assistant", "content": choice.text or None, "tool_calls": calls}
        told = {"role": "tool", "tool_call_id": choice.calls[0].id, "name": choice.calls[0].name}
        rendered = []
        with contextlib.suppress(RequestError):  # a template that wants more than this: nothing is known
            for result in _RESULTS:
                following = next_messages(job, [said, {**told, "content": result}])
                rendered.append(self._text.render(following, job.tools, job.template))
        return _common(*rendered) if len(rendered) == len(_RESULTS) else []


def _work(prompt: list[int], workspace: str) -> Submission:
    return Submission(
        prompt=prompt,
        params=SamplingParams(temperature=0),
        max_new=1,
        priority=_LAST,
        workspace=workspace,
        speculate=False,
        idle=True,
    )


def _forget(event: Event) -> None:
    """Nobody waits for what comes out."""


def _common(one: list[int], other: list[int]) -> list[int]:
    different = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:different]
