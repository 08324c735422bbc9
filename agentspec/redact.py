"""Takes secrets out of what is written down: values by the names they stand under, texts by what secrets look like.

What the well-known libraries offer does not fit: scanners of repositories (detect-secrets) work on files line by line
and call nothing but candidates; error trackers' scrubbers (sentry-sdk) know names only; PII detectors (presidio,
scrubadub) load language models and take milliseconds a text. This is a hundred lines of names and patterns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "[redacted]"

_NAMES = re.compile(
    r"""pass(?:word|wd|phrase|code)?s? | pwd | pin | secrets? | tokens? | (?:api|access|secret|private|session|signing|
    encryption|master|account|shared|auth|client|license|licence|ssh|service|admin|root|bot|user|host|storage)_?keys? |
    apikeys? | credentials? | auth(?:orization|entication)? | bearer | cookies? | jwt | otp | mfa | totp |
    (?:client|app|shared|webhook|signing)_secrets? | private_?key(?:_?data)? | connection_?string | dsn |
    cvv2? | cvc | card_?(?:number|no) | iban | ssn""",
    re.VERBOSE,
)
"""The last words of a name that stands for a secret: `db_password`, `X-Api-Key`, `accessToken`."""

_COUNTED = re.compile(
    r"(?:max|min|num|n|total|prompt|completion|input|output|count|used|next|page|cached|reasoning)_.*tokens?"
)
"""Tokens that are counted or turn a page, not shown at a door."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_PATTERNS = (
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)",
    r"\b(?:sk|pk|rk|ask|key)-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, ours
    r"\b(?:sk|pk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}",  # Stripe
    r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}",  # Slack
    r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",  # AWS
    r"\bAIza[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{20,}",  # Google
    r"\b(?:hf|npm|dop_v1|pypi|gsk|pat|shpat)[_-][A-Za-z0-9_-]{20,}",
    r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",  # SendGrid
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # JSON web tokens
)
_WHOLE = re.compile("|".join(f"(?:{pattern})" for pattern in _PATTERNS), re.DOTALL)

_SCHEME = re.compile(r"(?i)\b(bearer|basic|token|digest)(\s+)([A-Za-z0-9._~+/=-]{8,})")
_IN_URL = re.compile(r"(?<=://)([^\s/:@\"']*):([^\s/@\"']+)(?=@)")
_ASSIGNED = re.compile(
    r"""(?ix) (?P<name>[\"']?[a-z0-9_.-]*(?:passw(?:or)?d|passphrase|passwd|pwd|secret|api[_-]?key|access[_-]?key|
    private[_-]?key|token|authorization)[\"']?) (?P<is>\s*(?:=|:|=>)\s*)
    (?P<value>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' |
    [\"']?(?:(?:bearer|basic|digest|token)\s+)?(?:\[redacted\] | [^\s,;&"'}\])]+))"""
)
_HINTS = re.compile(
    r"(?i)[:=]|sk|pk|rk|key|gh|pat|xox|A[KSBC]|AIza|ya29|hf|npm|dop|pypi|gsk|SG\.|eyJ|bearer|basic|token|digest|whsec"
)


def is_secret_name(name: str) -> bool:
    """Whether a value under this name is a secret.

    >>> [is_secret_name(name) for name in ("password", "X-Api-Key", "accessToken", "DB_PASSWORD", "max_tokens", "key")]
    [True, True, True, True, False, False]
    """
    words = "_".join(word.lower() for word in _WORDS.findall(name))
    if not words or _COUNTED.fullmatch(words):
        return False
    parts = words.split("_")
    return any(_NAMES.fullmatch("_".join(parts[first:])) is not None for first in range(len(parts)))


def redact_text(text: str) -> str:
    """The text without what looks like a secret.

    >>> redact_text("401 for key sk-abcdefghijklmnop1234, Authorization: Bearer abc.def-ghi")
    '401 for key [redacted], Authorization: [redacted]'
    >>> redact_text("postgresql://me:hush@db/x")
    'postgresql://me:[redacted]@db/x'
    """
    if _HINTS.search(text) is None:
        return text
    text = _WHOLE.sub(REDACTED, text)
    text = _SCHEME.sub(_after_scheme, text)
    text = _IN_URL.sub(rf"\1:{REDACTED}", text)
    return _ASSIGNED.sub(_assigned, text)


def _after_scheme(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{REDACTED}"


def _assigned(found: re.Match[str]) -> str:
    if not is_secret_name(found["name"]):
        return found[0]
    value = found["value"]
    opened = value[0] if value[0] in "\"'" else ""
    closed = opened if opened and len(value) > 1 and value.endswith(opened) else ""
    return f"{found['name']}{found['is']}{opened}{REDACTED}{closed}"


def redact(value: Any) -> Any:
    """A JSON value without secrets: what stands under a secret's name, and what looks like one. A copy.

    >>> redact({"user": "ann", "password": "hush", "headers": [{"Authorization": "Bearer abcdefgh"}]})
    {'user': 'ann', 'password': '[redacted]', 'headers': [{'Authorization': '[redacted]'}]}
    """
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {name: _under(name, inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(inner) for inner in value]
    return value


def _under(name: Any, value: Any) -> Any:
    if isinstance(name, str) and value not in (None, "", True, False) and is_secret_name(name):
        return REDACTED
    return redact(value)
