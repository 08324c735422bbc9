"""What every program may know of the agent's environment; no secret is among it."""

from __future__ import annotations

import os

BASICS = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "SHELL", "VIRTUAL_ENV", "PYTHONUTF8"),
    *("LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"),
)


def basic_environment() -> dict[str, str]:
    """Those of the basics that are set."""
    return {name: value for name in BASICS if (value := os.environ.get(name)) is not None}
