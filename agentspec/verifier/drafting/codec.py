"""The little that drafters need to know about text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Codec(Protocol):
    """A tokenizer. Safe from any thread."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, no special tokens added."""
        ...

    def piece(self, token: int) -> bytes:
        """What a token adds to the text; empty for special tokens."""
        ...


def texts(codec: Codec, tokens: Sequence[int]) -> list[str]:
    """What tokens spell, in parts that special tokens divide."""
    parts = [bytearray()]
    for token in tokens:
        piece = codec.piece(token)
        if piece:
            parts[-1] += piece
        elif parts[-1]:
            parts.append(bytearray())
    return [part.decode(errors="replace") for part in parts if part]
