"""A text that an answer already begins with, in the tokens that generated it: their keys and values are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from agentspec.verifier.engine.radix import Node, RadixTree

_LOOKED_AT = 64  # kept answers


class Codec(Protocol):
    """The little that the engine needs to know about text."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, no special tokens added."""
        ...

    def piece(self, token: int) -> bytes:
        """What a token adds to the text; empty for special tokens."""
        ...


def continued(codec: Codec, text: str, answers: Iterable[Sequence[int]]) -> list[int]:
    """Tokens that spell `text`: as many as possible in the way that one of `answers` begins."""
    written = text.encode()
    best: Sequence[int] = []
    covered = 0
    for answer in answers:
        taken, length = _spelling(codec, answer, written)
        if length > covered:
            best, covered = taken, length
    return [*best, *codec.encode(written[covered:].decode())]


def kept_answers(tree: RadixTree, prompt: Sequence[int]) -> Iterator[list[int]]:
    """What followed `prompt` in the tree, latest first; at most a few dozen."""
    match = tree.match(prompt)
    size = tree.block_tokens
    known = len(match.nodes) * size
    start = match.nodes[-1] if match.nodes else tree.root
    rest = tuple(prompt[known:])
    waiting: list[tuple[Node, list[int]]] = [
        (child, list(child.tokens[len(rest) :]))
        for child in start.children.values()
        if child.tokens[: len(rest)] == rest and len(rest) < size
    ]
    found = 0
    while waiting and found < _LOOKED_AT:
        waiting.sort(key=lambda entry: entry[0].used)
        node, tokens = waiting.pop()
        if not node.children:
            found += 1
            yield tokens
        waiting += [(child, [*tokens, *child.tokens]) for child in node.children.values()]


def _spelling(codec: Codec, tokens: Sequence[int], text: bytes) -> tuple[Sequence[int], int]:
    """The longest run of `tokens` that spells a beginning of `text`, cut between characters; its byte length."""
    end, best, best_end = 0, 0, 0
    for index, token in enumerate(tokens):
        piece = codec.piece(token)
        if not piece or not text.startswith(piece, end):
            break
        end += len(piece)
        if end == len(text) or text[end] & 0xC0 != 0x80:
            best, best_end = index + 1, end
    return tokens[:best], best_end
