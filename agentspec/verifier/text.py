"""Text and tokens: chat template, tokenizer, and decoding that never cuts a character in two."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import AutoTokenizer

from agentspec.errors import RequestError

_MARKERS = frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"})
"""Tags that say how an answer is to be read; in some tokenizers they are special tokens, which have no text."""

_OURS = frozenset({"messages", "conversation", "tools", "chat_template", "add_generation_prompt", "tokenize"})
"""Arguments of the template that no request may set."""


class Text:
    """The tokenizer of one model folder.

    `special` holds the ids that steer the model and are no text (`<|im_end|>`, …).
    """

    def __init__(self, folder: str) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.special: set[int] = {i for i, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        self.special.update(self.tokenizer.all_special_ids)
        self._pieces: dict[int, bytes] = {}
        self._byte_of = _byte_alphabet()
        self._spoken = {
            token: str(added.content).encode()
            for token, added in self.tokenizer.added_tokens_decoder.items()
            if added.content in _MARKERS
        }

    @property
    def eos_ids(self) -> frozenset[int]:
        """The tokenizer's own end-of-sequence token, if it has one."""
        eos = self.tokenizer.eos_token_id
        return frozenset() if eos is None else frozenset([eos])

    @property
    def template(self) -> str:
        """The chat template's source; empty when the model has none."""
        template = self.tokenizer.chat_template
        return template if isinstance(template, str) else str(template or "")

    def encode(self, text: str) -> list[int]:
        """Token ids, no special tokens added."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def piece(self, token: int) -> bytes:
        """What a token adds to the text, as bytes (it may end inside a character); empty for special tokens."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._decode_piece(token)
        return known

    def spoken(self, token: int) -> bytes:
        """As `piece`, tags that are special tokens included."""
        return self._spoken.get(token) or self.piece(token)

    def token_of(self, written: str) -> int | None:
        """The one token that is this text; None where it takes several."""
        ids = self.encode(written)
        return ids[0] if len(ids) == 1 else None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Token ids of a conversation, as `rendered` writes it."""
        return self.encode(self.rendered(messages, tools, variables or {}))

    def rendered(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]
    ) -> str:
        """A conversation by the chat template, ending where the assistant's answer begins.

        Raises:
            RequestError: the model has no chat template, or the template refuses these messages.
        """
        if not self.template:
            raise RequestError("this model has no chat template: use /v1/completions", code="no_chat_template")
        try:
            text: str = self.tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                add_generation_prompt=True,
                tokenize=False,
                **{name: value for name, value in variables.items() if name not in _OURS},
            )
        except Exception as error:  # templates are programs: whatever they raise is about the messages
            raise RequestError(f"the chat template refused the messages: {error}", code="invalid_messages") from error
        return text

    def _decode_piece(self, token: int) -> bytes:
        if token in self.special:
            return b""
        added = self.tokenizer.added_tokens_decoder.get(token)
        if added is not None:
            return str(added.content).encode()
        written = self.tokenizer.convert_ids_to_tokens(token)
        if written is None:  # padding rows of the embedding
            return b""
        if all(char in self._byte_of for char in written):
            return bytes(self._byte_of[char] for char in written)
        return str(written).replace("\u2581", " ").encode()


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE writes for the 256 bytes."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in plain]
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


class Detokenizer:
    """Bytes in, whole characters out; what is not UTF-8 becomes U+FFFD, at the latest at the end."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> str:
        return self._decoder.decode(piece)

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)


class StopFinder:
    """Cuts text at the first of some strings, holding back what could be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [s for s in stops if s]
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop string was reached (it is not shown)."""
        self._held += text
        hits = [at for at in (self._held.find(s) for s in self._stops) if at >= 0]
        if hits:
            shown, self._held = self._held[: min(hits)], ""
            return shown, True
        keep = max((_overlap(self._held, s) for s in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def end(self) -> str:
        shown, self._held = self._held, ""
        return shown


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
