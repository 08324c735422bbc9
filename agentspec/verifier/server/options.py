"""What all APIs have in common: how to sample, when to stop, and the hints that only this engine reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentspec.errors import RequestError
from agentspec.verifier.server import fields
from agentspec.verifier.server.fields import Body
from agentspec.verifier.verification.sampling import SamplingParams, Tolerance

_MOST_CHOICES = 64
_MOST_TOKENS = 1 << 30
_INT32 = (1 << 31) - 1
_LOSSY = {"typical": Tolerance(epsilon=0.09, delta=0.3)}
"""What `agentspec.lossy` may say; the values are Medusa's (arXiv 2401.10774, section 2.3.2)."""


@dataclass(frozen=True, slots=True)
class Hints:
    """The object `agentspec` of a request, with what other engines spell otherwise.

    Attributes:
        request_id: the client's name for the request: drafts and cancels may use it.
        session: requests of one agent's conversation share it; None: unknown.
        workspace: text is shared as drafts within it, never across (`cache_salt` in vLLM).
        expected: texts that the answer may contain.
        speculate: draft tokens for it.
        idle: after an answer that ends in tool calls, compute what is already known of the next request.
    """

    request_id: str | None
    session: str | None
    workspace: str
    expected: tuple[str, ...]
    speculate: bool
    idle: bool


@dataclass(frozen=True, slots=True)
class Options:
    """What is the same in all APIs.

    Attributes:
        max_new: generated tokens at most; None: as many as fit.
        stops: texts that end the answer before them.
        stop_ids: tokens that do.
        choices: answers to one prompt (`n`).
        priority: lower runs sooner.
        token_ids: tell the generated tokens' ids (`return_token_ids` in vLLM).
    """

    params: SamplingParams
    max_new: int | None
    stops: tuple[str, ...]
    stop_ids: frozenset[int]
    choices: int
    priority: int
    stream: bool
    include_usage: bool
    token_ids: bool
    hints: Hints

    @property
    def lossy(self) -> bool:
        """Whether a draft may stand that is not what would have been picked."""
        return self.params.tolerance is not None


def read_options(body: Body, top_logprobs: int | None, *limits: str) -> Options:
    """Read them; `limits` are the fields that may bound the answer's length, the first that is given counts.

    Raises:
        RequestError: a field is wrong.
    """
    given = [fields.integer(body, name, 0, 1, _MOST_TOKENS) for name in limits if body.get(name) is not None]
    stream_options = fields.mapping(body, "stream_options")
    return Options(
        params=_params(body, top_logprobs),
        max_new=given[0] if given else None,
        stops=fields.texts(body, "stop"),
        stop_ids=_stop_ids(body),
        choices=fields.integer(body, "n", 1, 1, _MOST_CHOICES),
        priority=fields.integer(body, "priority", 0, -_INT32 - 1, _INT32),
        stream=bool(body.get("stream")),
        include_usage=bool(stream_options.get("include_usage")),
        token_ids=bool(body.get("return_token_ids")),
        hints=_hints(body),
    )


def _params(body: Body, top_logprobs: int | None) -> SamplingParams:
    return SamplingParams(
        temperature=fields.number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=fields.number(body, "top_p", 1.0, 0.0, 1.0),
        top_k=max(0, fields.integer(body, "top_k", 0, -1, _MOST_TOKENS)),
        min_p=fields.number(body, "min_p", 0.0, 0.0, 1.0),
        presence_penalty=fields.number(body, "presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=fields.number(body, "frequency_penalty", 0.0, -2.0, 2.0),
        repetition_penalty=fields.number(body, "repetition_penalty", 1.0, 0.01, 10.0),
        logit_bias=_logit_bias(body),
        seed=None if body.get("seed") is None else fields.integer(body, "seed", 0, -(1 << 63), (1 << 63) - 1),
        top_logprobs=top_logprobs,
        tolerance=_tolerance(body),
    )


def _logit_bias(body: Body) -> dict[int, float]:
    found = fields.mapping(body, "logit_bias")
    if not all(key.isdecimal() for key in found):
        raise RequestError("`logit_bias` must be an object from token ids to numbers")
    return {int(key): fields.number(found, key, 0.0, -100.0, 100.0) for key in found}


def _stop_ids(body: Body) -> frozenset[int]:
    found = body.get("stop_token_ids") or []
    if not isinstance(found, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in found):
        raise RequestError("`stop_token_ids` must be a list of token ids")
    return frozenset(found)


def _tolerance(body: Body) -> Tolerance | None:
    rule = fields.text(fields.mapping(body, "agentspec"), "lossy")
    if rule is not None and rule not in _LOSSY:
        raise RequestError(f"`agentspec.lossy` must be one of {', '.join(_LOSSY)}", code="unsupported")
    return None if rule is None else _LOSSY[rule]


def _hints(body: Body) -> Hints:
    own = fields.mapping(body, "agentspec")
    return Hints(
        request_id=fields.text(own, "request_id") or fields.text(body, "request_id"),
        session=fields.text(own, "session"),
        workspace=fields.text(own, "workspace") or fields.text(body, "cache_salt") or "",
        expected=(*_predicted(body.get("prediction")), *fields.texts(own, "drafts")),
        speculate=own.get("speculate") is not False,
        idle=own.get("idle") is not False,
    )


def _predicted(prediction: Any) -> tuple[str, ...]:
    if prediction is None:
        return ()
    if not isinstance(prediction, Mapping) or prediction.get("type") != "content":
        raise RequestError("`prediction` must be an object of type `content`")
    told = fields.content(prediction.get("content"), "`prediction.content`")
    return (told,) if told else ()
