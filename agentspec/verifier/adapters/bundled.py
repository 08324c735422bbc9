"""The bundled engine: ours, so its door is what the others are measured by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentspec.config import Engine
from agentspec.verifier.adapters.asking import Asking, found_in, health_of
from agentspec.verifier.adapters.bodies import COUNTERS, continued, metered, named, predicted
from agentspec.verifier.adapters.installed import python_of
from agentspec.verifier.adapters.protocol import (
    Cancelling,
    Capabilities,
    Chat,
    Command,
    DraftCount,
    EngineRequest,
    Handover,
    Health,
    StartOptions,
)
from agentspec.verifier.config import require_extra

_AFTER_THE_TURN = 10
_UNKNOWN_PATH = "unknown_path"


class BundledAdapter:
    """Implements `EngineAdapter`."""

    name = "bundled"
    engine = Engine.AGENTSPEC
    request_header = b"x-request-id"
    shares_drafts = False

    def command(self, options: StartOptions) -> Command:
        if not options.python:
            require_extra()
        told = {
            "--model": options.model,
            "--host": options.host,
            "--port": options.port,
            "--dtype": options.dtype,
            "--device": options.device,
            "--threads": options.threads,
            "--max-context": options.max_context,
            "--speculate": options.speculate,
            "--draft-model": options.draft_model,
        }
        flags = [part for flag, value in told.items() if value is not None for part in (flag, str(value))]
        return Command((python_of(options.python), "-m", "agentspec.verifier", *flags, *options.more))

    def health(self, url: str) -> Health:
        return health_of(url)

    def capabilities(self, url: str, key: str = "") -> Capabilities:
        with Asking(url, key) as asking:
            model, longest = asking.model()
            refused = asking.page("/v1/drafts", {"request_id": "none-of-this-name", "drafts": []})
            metrics = found_in(asking.metrics(), COUNTERS)
            version = str(asking.page("/health").json.get("version", ""))
        takes = refused.status not in (404, 405) or _UNKNOWN_PATH not in refused.text
        return Capabilities(
            engine=self.engine,
            version=version,
            model=model,
            max_context_tokens=longest,
            prefix_cache=True,
            priority=True,
            lower_first=True,
            continue_final_message=True,
            handover=Handover.POSTED if takes else Handover.NONE,
            cancelling=Cancelling.BY_ID if takes else Cancelling.CLOSE,
            usage_fields=(
                "prompt_tokens_details.cached_tokens",
                "completion_tokens_details.accepted_prediction_tokens",
                "completion_tokens_details.rejected_prediction_tokens",
            ),
            metrics=metrics,
        )

    def probe_body(self, chat: Chat, text: str, max_tokens: int) -> dict[str, Any]:
        """The turn's own grammar goes on: `tool_choice` stays."""
        return continued(chat, text, max_tokens, _AFTER_THE_TURN)

    def cancel(self, request_id: str) -> EngineRequest | None:
        return EngineRequest("POST", "/v1/cancel", {"request_id": named(request_id)})

    def offer_drafts(self, request_id: str, texts: Sequence[str]) -> EngineRequest | None:
        return EngineRequest("POST", "/v1/drafts", {"request_id": named(request_id), "drafts": list(texts)})

    def withdraw_drafts(self, request_id: str) -> EngineRequest | None:
        return None

    def used(self, usage: Mapping[str, Any]) -> DraftCount | None:
        return predicted(usage)

    def metered(self, page: str) -> DraftCount | None:
        return metered(page)
