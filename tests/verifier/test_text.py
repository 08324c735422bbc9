from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentspec.verifier.text import Detokenizer, StopFinder, Text


@given(st.text(), st.data())
def test_characters_are_never_cut(written: str, data: st.DataObject) -> None:
    raw = written.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    detokenizer = Detokenizer()
    shown = [detokenizer.feed(raw[a:b]) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert all("\ufffd" not in part for part in shown) or "\ufffd" in written
    assert "".join(shown) + detokenizer.end() == written


def test_an_unfinished_character_shows_as_one_replacement_at_the_end() -> None:
    detokenizer = Detokenizer()
    assert detokenizer.feed("é".encode()[:1]) == ""
    assert detokenizer.end() == "\ufffd"


@given(st.text("abc", max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.data())
def test_stop_strings_do_not_depend_on_how_text_arrives(written: str, stops: list[str], data: st.DataObject) -> None:
    finder = StopFinder(stops)
    shown, stopped, rest = "", False, written
    while rest and not stopped:
        size = data.draw(st.integers(1, len(rest)))
        part, stopped = finder.feed(rest[:size])
        shown, rest = shown + part, rest[size:]
    if not stopped:
        shown += finder.end()
        assert shown == written
    assert stopped == any(s in written for s in stops)
    assert not any(s in shown for s in stops)
    assert written.startswith(shown)


def test_pieces_spell_the_text(text: Text) -> None:
    for written in ("Plan: grün 你好 😀\n", '{"name": "x"}', "<tool_call>\n", "\x00\x7f\u2028"):
        assert b"".join(map(text.piece, text.encode(written))).decode() == written


def test_special_tokens_add_no_text(text: Text) -> None:
    assert text.piece(text.encode("<|im_end|>")[0]) == b""
    assert text.piece(100_000) == b""
