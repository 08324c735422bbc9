"""Log-probabilities in the APIs' shapes."""

from __future__ import annotations

from agentspec.verifier.engine.interface import Token
from agentspec.verifier.server.answer import Json
from agentspec.verifier.server.assembler import Piece


def token_logprobs(tokens: list[Token], piece: Piece) -> list[Json]:
    """As in chats and responses: one object for each token."""

    def entry(token: int, logprob: float) -> Json:
        data = piece(token)
        return {"token": data.decode(errors="replace"), "logprob": logprob, "bytes": list(data)}

    return [
        {**entry(t.id, t.logprobs.logprob), "top_logprobs": [entry(i, p) for i, p in t.logprobs.top]}
        for t in tokens
        if t.logprobs is not None
    ]


def text_logprobs(tokens: list[Token], piece: Piece, offset: int) -> Json:
    """The legacy shape of `/v1/completions`; `offset` is where in the answer the first token's text begins."""
    shape: Json = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token in tokens:
        if token.logprobs is None:
            continue
        written = piece(token.id).decode(errors="replace")
        shape["tokens"].append(written)
        shape["token_logprobs"].append(token.logprobs.logprob)
        shape["top_logprobs"].append({piece(i).decode(errors="replace"): p for i, p in token.logprobs.top})
        shape["text_offset"].append(offset)
        offset += len(written)
    return shape
