"""What the requests to several engines have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentspec.verifier.adapters.asking import total
from agentspec.verifier.adapters.protocol import Chat, DraftCount
from agentspec.wire.answers import drafts

_DRAFTED, _ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"
COUNTERS = ("vllm:prefix_cache_hits_total", _DRAFTED, _ACCEPTED)
"""Counters under vLLM's names, which the bundled engine uses as well: tokens reused, drafted and accepted."""


def continued(chat: Chat, text: str, max_tokens: int, priority: int) -> dict[str, Any]:
    """A chat whose answer has begun with `text` and goes on, with the log-probability of each token."""
    return {
        **chat,
        "messages": [*chat["messages"], {"role": "assistant", "content": text}],
        "add_generation_prompt": False,
        "continue_final_message": True,
        "max_tokens": max_tokens,
        "priority": priority,
        "logprobs": True,
    }


def named(request_id: str) -> str:
    """A request's id.

    Raises:
        ValueError: it is empty.
    """
    if not request_id:
        raise ValueError("a request without an id cannot be named")
    return request_id


def predicted(usage: Mapping[str, Any]) -> DraftCount | None:
    """Drafts as OpenAI's `usage` counts them: `completion_tokens_details.{accepted,rejected}_prediction_tokens`."""
    counted = drafts(usage.get("completion_tokens_details"))
    return None if counted is None else DraftCount(*counted)


def metered(page: str) -> DraftCount | None:
    """An engine's totals of drafts since its start, from its page of metrics; None where it has none."""
    drafted, accepted = total(page, _DRAFTED), total(page, _ACCEPTED)
    return None if drafted is None or accepted is None else DraftCount(drafted, accepted)
