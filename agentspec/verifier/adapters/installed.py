"""What is installed in the Python environment that an engine runs in, which is seldom ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from agentspec.errors import ConfigError

_LOOK = """
import importlib.metadata, importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    if importlib.util.find_spec(name) is not None:
        try:
            found[name] = importlib.metadata.version(name.replace("_", "-"))
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
print(json.dumps(found))
"""
_LIMIT_S = 60.0


def python_of(given: str) -> str:
    """The interpreter that is meant; "" for the one that runs us.

    Raises:
        ConfigError: there is none of that name.
    """
    found = shutil.which(str(Path(given).expanduser())) if given else sys.executable
    if found is None:
        raise ConfigError(f"there is no Python {given!r}; give the python of the engine's environment (--python)")
    return found


def installed(python: str, names: Sequence[str]) -> dict[str, str]:
    """Which of these modules an environment has, without importing them, and their versions ("": not told).

    Raises:
        ConfigError: that Python does not run.
    """
    try:
        done = subprocess.run(
            [python, "-c", _LOOK, *names], capture_output=True, text=True, timeout=_LIMIT_S, check=True
        )
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(f"{python} does not run: {error}") from error
    return found
