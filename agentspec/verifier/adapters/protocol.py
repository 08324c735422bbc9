"""What an engine adapter is: everything that differs between the engines behind one interface."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from agentspec.config import Engine

Chat = Mapping[str, Any]
"""The body of a chat completion request."""


class Handover(StrEnum):
    """How text that a turn may be about to write reaches the engine as drafts."""

    NONE = "none"
    """Not at all."""
    POSTED = "posted"
    """It is posted for one running request and serves no other."""
    CORPUS = "corpus"
    """It is put into a corpus that all requests draft from."""
    OWN = "own"
    """The engine drafts from what it generated itself, probes included; nothing is sent."""


class Cancelling(StrEnum):
    """How a request ends before its answer does. Closing its connection always does."""

    CLOSE = "close"
    BY_ID = "close or id"


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How an engine is to be started.

    Attributes:
        model: a folder, a Hugging Face id, or a short name of `weights.MODELS`.
        speculate: the method that drafts tokens; None: the best that is installed; "off": none.
        draft_model: the weights of methods that need some (`draft_model`, `eagle3`, …).
        draft_tokens: most tokens of a draft.
        dtype: `auto` or the engine's word for it.
        device: `auto`, `cpu` or `cuda`.
        python: the Python of the environment in which the engine is installed; "": this one.
        more: passed on to the engine's own command as they are.
    """

    model: str
    host: str = "127.0.0.1"
    port: int = 8100
    speculate: str | None = None
    draft_model: str | None = None
    draft_tokens: int = 16
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
    max_context: int | None = None
    python: str = ""
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and the environment variables that it needs beside those that are set."""

    line: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request to an engine: `path` counts from its root (`/v1/drafts`), `body` is JSON."""

    method: str
    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DraftCount:
    """Tokens that were drafted, and how many of them the engine accepted."""

    drafted: int
    accepted: int

    def since(self, before: DraftCount) -> DraftCount:
        """What came after an earlier count of the same engine."""
        return DraftCount(self.drafted - before.drafted, self.accepted - before.accepted)


@dataclass(frozen=True, slots=True)
class Health:
    """Whether an engine answers: the status of its page of health (None: unreachable), seconds it took, and why not."""

    up: bool
    status: int | None
    took_s: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a running engine can do, as far as it tells.

    Attributes:
        version: the engine's; "" where it tells none.
        model: the name that requests use; "" where it serves none.
        max_context_tokens: prompt and answer together; None: not told.
        prefix_cache: whether a probe reuses its turn's prefix; None: not told.
        priority: whether requests are ordered by their `priority`; None: not told.
        lower_first: whether a lower number is served sooner.
        continue_final_message: whether an assistant's last message can be continued, which a probe is.
        usage_fields: where an answer's `usage` counts tokens that were reused, drafted and accepted.
        metrics: names on its page of metrics that count the same.
    """

    engine: Engine
    version: str
    model: str
    max_context_tokens: int | None
    prefix_cache: bool | None
    priority: bool | None
    lower_first: bool
    continue_final_message: bool
    handover: Handover
    cancelling: Cancelling
    usage_fields: tuple[str, ...]
    metrics: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return dataclasses.asdict(self)


class EngineAdapter(Protocol):
    """One kind of engine. Stateless."""

    name: str
    engine: Engine
    request_header: bytes | None
    """The header whose value becomes the request's id in the engine; None where there is none."""
    shares_drafts: bool
    """Whether what is offered for one request serves all others too."""

    def command(self, options: StartOptions) -> Command:
        """The command that starts it.

        Raises:
            ConfigError: it is not installed, or an option does not fit; the message says what to do.
        """
        ...

    def health(self, url: str) -> Health:
        """Whether it answers. `url`: its root, or its base URL with `/v1`. Never raises."""
        ...

    def capabilities(self, url: str, key: str = "") -> Capabilities:
        """What it can do.

        Raises:
            UpstreamError: it cannot be reached.
        """
        ...

    def probe_body(self, chat: Chat, text: str, max_tokens: int) -> dict[str, Any]:
        """A turn's chat, forked: its answer continues behind `text`, greedily, after the turn in line."""
        ...

    def cancel(self, request_id: str) -> EngineRequest | None:
        """Ends a request by its id; None where only closing its connection does.

        Raises:
            ValueError: the id is empty, which some engines take for all requests.
        """
        ...

    def offer_drafts(self, request_id: str, texts: Sequence[str]) -> EngineRequest | None:
        """Offers texts that a running request may be about to write; None where the engine takes none."""
        ...

    def withdraw_drafts(self, request_id: str) -> EngineRequest | None:
        """Takes back what was offered for a request that has ended; None where that goes by itself."""
        ...

    def used(self, usage: Mapping[str, Any]) -> DraftCount | None:
        """What an answer's `usage` says of its drafts; None where it says nothing."""
        ...

    def metered(self, page: str) -> DraftCount | None:
        """The engine's totals since its start, from its page of metrics; None where it has none."""
        ...
