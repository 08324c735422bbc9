"""What other processes of ours get of the agent's environment; no secret is among it unless its name was declared."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from agentspec.runs import Place

BASICS = (
    *("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "SHELL", "VIRTUAL_ENV", "PYTHONUTF8"),
    *("LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"),
)

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

ZYGOTES_OWN = ("PYTHONPATH", *_ONE_THREAD)
"""Variables of a zygote alone: it must find our modules, and imports that start threads would make it useless."""


def basic_environment() -> dict[str, str]:
    """Those of the basics that are set."""
    return {name: value for name in BASICS if (value := os.environ.get(name)) is not None}


def place_here(declared: Iterable[str]) -> Place:
    """This process, as a run in another one sees it right now."""
    return Place(os.getcwd(), basic_environment(), {name: os.environ[name] for name in declared if name in os.environ})


def zygotes_own() -> dict[str, str]:
    """The values of `ZYGOTES_OWN`."""
    return {"PYTHONPATH": python_path(), **_ONE_THREAD}


def python_path() -> str:
    """Where another interpreter finds what this one finds."""
    return os.pathsep.join(path for path in sys.path if path)
