"""Secrets are taken out, by name and by look; everything else stays as it was."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentspec.redact import REDACTED, is_secret_name, redact, redact_text

_TOKEN = st.text(string.ascii_letters + string.digits, min_size=36, max_size=60)
_PREFIXES = ["sk-", "sk-ant-api03-", "ask-", "ghp_", "github_pat_", "glpat-", "xoxb-", "hf_", "npm_", "sk_live_"]
_NAMES = ["password", "db_password", "X-Api-Key", "apiKey", "access_token", "clientSecret", "Authorization", "cookie"]
_PLAIN = st.text(string.ascii_letters + string.digits + " .,!?()-_/", max_size=80)


@given(_PLAIN, st.sampled_from(_PREFIXES), _TOKEN, _PLAIN)
def test_keys_of_the_usual_kinds_never_stay_in_a_text(before: str, prefix: str, token: str, after: str) -> None:
    assume(token not in before + after)
    secret = prefix + token
    assert token not in redact_text(f"{before} {secret} {after}")


@given(_PLAIN, st.sampled_from(["Bearer", "bearer", "Basic", "Token"]), _TOKEN)
def test_what_stands_behind_a_scheme_never_stays(before: str, scheme: str, token: str) -> None:
    assume(token not in before)
    assert token not in redact_text(f"{before} {scheme} {token}")


@given(st.sampled_from(_NAMES), _TOKEN, st.sampled_from(["=", ": ", " = ", '": "', "'='"]))
def test_what_is_assigned_to_a_secrets_name_never_stays(name: str, secret: str, sign: str) -> None:
    if name != "cookie":
        assert secret not in redact_text(f"failed with {name}{sign}{secret}, sorry")


@given(st.sampled_from(_NAMES), st.one_of(_TOKEN, st.integers(2), st.lists(_TOKEN), st.dictionaries(_TOKEN, _TOKEN)))
def test_what_stands_under_a_secrets_name_never_stays(name: str, value: Any) -> None:
    found = redact({"outer": [{name: value}]})["outer"][0][name]
    assert found in (REDACTED, value) and (found == REDACTED or value in ([], {}))


@given(st.from_regex(r"[a-z]{1,10}", fullmatch=True), _TOKEN)
def test_a_password_in_a_url_never_stays(user: str, password: str) -> None:
    found = redact_text(f"cannot open postgresql://{user}:{password}@db:5432/x")
    assert password not in found
    assert found.endswith("@db:5432/x")


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=30)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4)),
    max_leaves=20,
)


@given(_JSON)
def test_twice_is_once_and_the_shape_stays(value: Any) -> None:
    before = json.dumps(value)
    once = redact(value)
    assert redact(once) == once
    assert json.dumps(value) == before
    if isinstance(value, dict):
        assert once.keys() == value.keys()


@given(st.text(max_size=200))
def test_any_text_will_do(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.parametrize(
    "harmless",
    [
        "The order #W1234 is on its way: status=shipped, total: 12.50",
        "p=0.62 > p*=0.14, may save 0.85 s",
        "max_tokens=100, completion_tokens: 7",
        "https://example.com/a?page=2&sort=asc",
        "the key is under the mat; a token of thanks",
        '{"order_id": "A1", "key": "value", "keyboard": "qwerty"}',
        "skating-in-the-park-all-day-long",
        "",
    ],
)
def test_what_is_no_secret_stays(harmless: str) -> None:
    assert redact_text(harmless) == harmless


@pytest.mark.parametrize(
    "name", ["key", "max_tokens", "prompt_tokens", "next_page_token", "monkey", "order_id", "author"]
)
def test_names_that_only_sound_like_it(name: str) -> None:
    assert not is_secret_name(name)
    assert redact({name: "value"}) == {name: "value"}


def test_a_private_key_goes_as_a_whole() -> None:
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----"
    assert redact_text(f"see {pem} there") == f"see {REDACTED} there"
