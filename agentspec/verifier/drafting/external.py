"""Drafts from outside: a rejected probe's call, a predicted output, whatever somebody knows that may be said.

A draft is text (or tokens) that the answer may contain, from its beginning or from somewhere in the middle. It is used
when the answer reaches it, and found again after a difference.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentspec.verifier.drafting.alignment import TAIL_BYTES, Alignment
from agentspec.verifier.drafting.codec import Codec
from agentspec.verifier.drafting.copies import escaped
from agentspec.verifier.drafting.protocol import Draft, Opening

Offered = str | Sequence[int]
_KEPT_S = 60.0
_KEPT_REQUESTS = 256
_MOST_TEXTS = 8  # for one request; the newest count
_MOST_BYTES = 1 << 18  # of one text
_HALF_BYTES = 6.0  # bytes of agreement after which half of the doubt is gone
_CHANCE_AT_LINE = 0.25
_LEAST_REACH = 0.02


@dataclass(slots=True)
class _Post:
    """The texts for one request, from any thread to the engine's."""

    texts: list[Offered] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)
    open: bool = False


class ExternalDrafter:
    """`offer` may be called from any thread, the rest is the engine's worker thread's."""

    name = "external"
    cost_s_per_token = 0.0

    def __init__(self, codec: Codec, kept_s: float = _KEPT_S) -> None:
        self.codec = codec
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._posts: OrderedDict[str, _Post] = OrderedDict()

    def offer(self, request_id: str, drafts: Sequence[Offered]) -> bool:
        """Post drafts for a running request, or for one that comes soon.

        Returns:
            Whether the request is running. If not, the drafts are kept for `kept_s` seconds.
        """
        with self._lock:
            self._expire()
            post = self._posts.setdefault(request_id, _Post())
            post.texts = [*post.texts, *drafts][-_MOST_TEXTS:]
            return post.open

    def open(self, opening: Opening) -> ExternalSession:
        with self._lock:
            self._expire()
            post = self._posts.setdefault(opening.request_id, _Post())
            post.open = True
        return ExternalSession(self, opening)

    def take(self, request_id: str) -> list[Offered]:
        """The texts that came for a running request since the last call."""
        post = self._posts.get(request_id)
        if post is None or not post.texts:
            return []
        with self._lock:
            texts, post.texts = post.texts, []
        return texts

    def drop(self, request_id: str) -> None:
        """The request is over."""
        with self._lock:
            self._posts.pop(request_id, None)

    def _expire(self) -> None:
        waiting = [name for name, post in self._posts.items() if not post.open]
        old = time.monotonic() - self._kept_s
        surplus = len(waiting) - _KEPT_REQUESTS
        for index, name in enumerate(waiting):
            if index <= surplus or self._posts[name].since < old:
                del self._posts[name]


class ExternalSession:
    """The texts for one request, and where its answer is in each."""

    def __init__(self, drafter: ExternalDrafter, opening: Opening) -> None:
        self._drafter = drafter
        self._codec = drafter.codec
        self._request_id = opening.request_id
        self._tail = b"".join(map(self._codec.piece, opening.prompt[-TAIL_BYTES:]))[-TAIL_BYTES:]
        self._said = False
        self._plain: list[Alignment] = []
        self._copies: list[Alignment] = []
        for text in opening.expected[-_MOST_TEXTS:]:
            self._add(text)

    def extend(self, tokens: Sequence[int]) -> None:
        """The answer goes on."""
        self._collect()
        for token in tokens:
            self._tail = (self._tail + self._codec.piece(token))[-TAIL_BYTES:]
            for alignment in (*self._plain, *self._copies):
                alignment.feed(token, self._tail)
        self._said = self._said or bool(tokens)

    def propose(self, limit_tokens: int) -> Sequence[Draft]:
        """What should come next in each text, the one first that the answer has followed longest."""
        self._collect()
        drafts = []
        for alignment in sorted((*self._plain, *self._copies), key=lambda a: -a.agreed):
            chance = self._chance(alignment)
            tokens = alignment.upcoming(limit_tokens) if chance > 0 else []
            if tokens:
                drafts.append(self._draft(tokens, chance, alignment.agreed))
        return drafts

    def close(self) -> None:
        self._drafter.drop(self._request_id)

    def _chance(self, alignment: Alignment) -> float:
        """Of the next token, as a share of what the agreement alone would say."""
        if alignment.agreed or alignment.begun:
            return 1.0
        if alignment in self._copies:
            return 0.0
        if not self._said:
            return 1.0
        return _CHANCE_AT_LINE if self._tail.endswith((b"\n", b">")) else 0.0

    def _draft(self, tokens: Sequence[int], chance: float, agreed: int) -> Draft:
        confidences: list[float] = []
        reach = 1.0
        for token in tokens:
            if reach < _LEAST_REACH:
                break
            confidences.append(chance * (1.0 - 0.5 / (1.0 + agreed / _HALF_BYTES)))
            agreed += len(self._codec.piece(token))
            reach *= confidences[-1]
            chance = 1.0
        return Draft(tuple(tokens[: len(confidences)]), tuple(confidences), ExternalDrafter.name)

    def _collect(self) -> None:
        for text in self._drafter.take(self._request_id):
            self._add(text)

    def _add(self, text: Offered) -> None:
        if not text:
            return
        if not isinstance(text, str):
            spelled = b"".join(map(self._codec.piece, text))
            self._start(self._plain, Alignment(self._codec, spelled[:_MOST_BYTES], text))
            return
        raw = text.encode()[:_MOST_BYTES]
        self._start(self._plain, Alignment(self._codec, raw))
        quoted = escaped(text).encode()[:_MOST_BYTES]
        if quoted != raw:  # as an argument of a tool call
            self._start(self._copies, Alignment(self._codec, quoted))

    def _start(self, among: list[Alignment], alignment: Alignment) -> None:
        alignment.resume(self._tail)
        among.append(alignment)
        del among[:-_MOST_TEXTS]
