"""Drafts from text that was there before: this answer, its session, its workspace, and text known to all.

Suffix automata (SAM-Decoding, arXiv 2411.10666) with frequency-weighted trees of continuations (SuffixDecoding, arXiv
2411.04975). Prompts are kept by session, together with copies as they would stand in a tool call (`copies`); answers by
session and by workspace. Text never crosses workspaces.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentspec.verifier.drafting.automaton import Automaton, Match
from agentspec.verifier.drafting.codec import Codec, texts
from agentspec.verifier.drafting.copies import copies
from agentspec.verifier.drafting.corpus import Corpus, Reader
from agentspec.verifier.drafting.protocol import Draft, Opening

_OVERLAP = 8  # tokens read again where a prompt leaves the one before


@dataclass(frozen=True, slots=True)
class SuffixLimits:
    """How much is kept and done. 130 to 260 bytes of memory a token.

    Attributes:
        session_tokens, workspace_tokens, global_tokens: kept of each at most.
        all_tokens: kept of all sessions and workspaces together; the longest unused go first.
        sessions, workspaces: how many of each are kept.
        prompt_tokens: of a prompt's new part, read when a request opens (a microsecond a token).
        copied_tokens: of it, copied in the background (0: none).
        least_match: tokens of context that must agree.
        nodes: tokens proposed at most, by each of the four kinds of text.
    """

    session_tokens: int = 262_144
    workspace_tokens: int = 262_144
    global_tokens: int = 262_144
    all_tokens: int = 1_000_000
    sessions: int = 256
    workspaces: int = 64
    prompt_tokens: int = 131_072
    copied_tokens: int = 32_768
    least_match: int = 2
    nodes: int = 64


class SuffixDrafter:
    """Looks continuations up. Sessions are the engine's worker thread's; copies are made by a thread of its own."""

    name = "suffix"
    cost_s_per_token = 0.0

    def __init__(self, codec: Codec, limits: SuffixLimits | None = None, known: Iterable[str] = ()) -> None:
        self.codec = codec
        self.limits = limits or SuffixLimits()
        self.known = Corpus(self.limits.global_tokens, 1)
        for text in known:
            self.known.add(codec.encode(text))
        self.copier = ThreadPoolExecutor(1, thread_name_prefix="verifier-copies")
        self._sessions: OrderedDict[tuple[str, str], SessionText] = OrderedDict()
        self._workspaces: OrderedDict[str, Corpus] = OrderedDict()

    def open(self, opening: Opening) -> SuffixSession:
        """Read what is new of the prompt."""
        place = (opening.workspace, opening.session or "")
        session = self._sessions.setdefault(place, SessionText(self))
        workspace = self._workspaces.setdefault(opening.workspace, Corpus(self.limits.workspace_tokens))
        self._sessions.move_to_end(place)
        self._workspaces.move_to_end(opening.workspace)
        new = session.read(opening.prompt)
        if new:
            session.copy(opening.prompt[-new:])
        self._forget()
        return SuffixSession(self, session, workspace, opening)

    def close(self) -> None:
        """End the thread that makes copies."""
        self.copier.shutdown(cancel_futures=True)

    def tokens_kept(self) -> int:
        """Of all sessions and workspaces."""
        corpora = [*(session.corpus for session in self._sessions.values()), *self._workspaces.values()]
        return sum(len(corpus) for corpus in corpora)

    def _forget(self) -> None:
        limits = self.limits
        while len(self._sessions) > 1 and (
            len(self._sessions) > limits.sessions or self.tokens_kept() > limits.all_tokens
        ):
            self._sessions.popitem(last=False)
        while len(self._workspaces) > 1 and (
            len(self._workspaces) > limits.workspaces or self.tokens_kept() > limits.all_tokens
        ):
            self._workspaces.popitem(last=False)


class SessionText:
    """What one agent's conversation has said so far."""

    def __init__(self, drafter: SuffixDrafter) -> None:
        self._drafter = drafter
        self.corpus = Corpus(drafter.limits.session_tokens, 2)
        self._last: NDArray[np.int32] = np.empty(0, dtype=np.int32)  # the conversation as it was last read
        self._open = False  # the corpus ends with it
        self._copies: list[Future[list[list[int]]]] = []

    def read(self, tokens: Sequence[int]) -> int:
        """The conversation as it stands; what goes on from the last time is read once. Returns the tokens read."""
        now = np.asarray(tokens, dtype=np.int32)
        known = _common(now, self._last)
        if known == len(now):
            return 0
        follows = self._open and known == len(self._last)
        new = now[known if follows else max(0, known - _OVERLAP) :][-self._drafter.limits.prompt_tokens :]
        self.corpus.add(new, continued=follows)
        self._last, self._open = now, True
        return len(now) - known

    def copy(self, tokens: Sequence[int]) -> None:
        """Have copies made of a text."""
        limit = self._drafter.limits.copied_tokens
        if limit == 0:
            return
        newest = list(tokens[-limit:])
        self._copies.append(self._drafter.copier.submit(_copied, self._drafter.codec, newest))

    def collect(self, *, wait: bool = False) -> None:
        """Take in the copies that are ready (`wait`: all)."""
        if not self._copies:
            return
        ready = [future for future in self._copies if wait or future.done()]
        self._copies = [future for future in self._copies if future not in ready]
        for future in ready:
            for copy in future.result():
                self.corpus.add(copy)
                self._open = False


class SuffixSession:
    """The lookups for one request."""

    def __init__(self, drafter: SuffixDrafter, session: SessionText, workspace: Corpus, opening: Opening) -> None:
        self._limits = drafter.limits
        self._session = session
        self._workspace = workspace
        self._prompt = opening.prompt
        self._answer: list[int] = []
        self._own = Automaton()
        self._match = Match()
        self._readers = [Reader(corpus, opening.prompt) for corpus in (session.corpus, workspace, drafter.known)]

    def extend(self, tokens: Sequence[int]) -> None:
        """The answer goes on."""
        self._answer.extend(tokens)
        for token in tokens:
            self._own.follow(self._match, (token,))
            self._own.extend((token,))
        for reader in self._readers:
            reader.extend(tokens)

    def propose(self, limit_tokens: int) -> Sequence[Draft]:
        """Trees of continuations as drafts, branch by branch."""
        self._session.collect()
        least, nodes = self._limits.least_match, self._limits.nodes
        found = [self._own.continuations(self._match, least, limit_tokens, nodes)]
        for reader in self._readers:
            found += reader.continuations(least, limit_tokens, nodes)
        drafts = [
            Draft(tuple(tree.tokens[i] for i in branch), tuple(tree.confidences[i] for i in branch), SuffixDrafter.name)
            for tree in found
            for branch in tree.branches()
        ]
        return sorted(drafts, key=lambda draft: -math.prod(draft.confidences[:4]))

    def wait(self) -> None:
        """Until the copies of the prompt are there: for tests and measurements."""
        self._session.collect(wait=True)

    def close(self) -> None:
        """Keep what was said."""
        self._session.read([*self._prompt, *self._answer])
        self._workspace.add(self._answer)


def _common(a: NDArray[np.int32], b: NDArray[np.int32]) -> int:
    """How many leading tokens are equal."""
    size = min(len(a), len(b))
    differ = a[:size] != b[:size]
    return int(differ.argmax()) if differ.any() else size


def _copied(codec: Codec, tokens: Sequence[int]) -> list[list[int]]:
    return [codec.encode(copy) for text in texts(codec, tokens) for copy in copies(text)]
