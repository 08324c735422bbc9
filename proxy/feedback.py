"""`POST /agentspec/feedback`: how a trajectory ended, as far as somebody knows; memory learns less of what failed."""

from __future__ import annotations

import msgspec

from agentspec.errors import RequestError
from agentspec.proxy.learning import Learner
from agentspec.proxy.trajectories import trajectory_of


class Feedback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`session`: as in `x-agentspec-session`; `outcome`: true or 1.0 for a success, false or 0.0 for a failure."""

    session: str
    outcome: bool | float


_DECODER = msgspec.json.Decoder(Feedback)


def take_feedback(learner: Learner | None, tenant: str, body: bytes) -> None:
    """Have a trajectory learnt with its outcome.

    Raises:
        RequestError: the body is no feedback, memory is off, or the trajectory is not known or was learnt already.
    """
    try:
        feedback = _DECODER.decode(body)
    except msgspec.DecodeError as error:
        shape = 'write {"session": "...", "outcome": true}'
        raise RequestError(f"this is no feedback: {error}; {shape}", code="invalid_feedback") from error
    outcome = float(feedback.outcome)
    if not 0.0 <= outcome <= 1.0:
        raise RequestError("an outcome is true, false, or a number from 0 to 1", code="invalid_feedback")
    if learner is None:
        raise RequestError("memory is off: nothing is learnt (setting memory)", code="memory_off", status=409)
    if not learner.judge(tenant, trajectory_of(tenant, feedback.session), outcome):
        why = f"no session {feedback.session!r} waits to be learnt: it is not known, or was quiet for longer than "
        raise RequestError(why + "memory_idle_s", code="not_found", status=404)
