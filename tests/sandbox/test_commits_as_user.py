"""The commit checks once more, as a user without any rights: another kernel path (user namespaces), other refusals."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = "65534"
FEWER = {"AGENTSPEC_TEST_STEP": "15", "AGENTSPEC_TEST_EXAMPLES": "16", "AGENTSPEC_TEST_MANY": "12"}
MODULES = [
    "test_commit_crashes.py",
    "test_committer_dies.py",
    "test_commit_property.py",
    "test_commit_fidelity.py",
    "test_discarded_runs.py",
]

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="this is an ordinary user already")


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that this user may write in, and whose way everybody may go."""
    made = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="user-"))
    os.chown(made, int(NOBODY), int(NOBODY))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def as_user(home: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    if (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("setpriv is not installed")
    python_path = os.pathsep.join([str(ROOT), *(path for path in sys.path if "site-packages" in path)])
    basics = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": python_path, "TMPDIR": str(home)}
    return subprocess.run(
        [setpriv, "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "/bin/sh", "-c", 'exec "$@"', "-", *command],
        env={**basics, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def python_for_everybody(home: Path) -> str:
    """This interpreter, or the system's of the same version where only root may enter this one's folder."""
    mine = "{}.{}".format(*sys.version_info)
    for candidate in (sys.executable, f"/usr/bin/python{mine}"):
        if as_user(home, candidate, "-c", "import agentspec, pytest, hypothesis").returncode == 0:
            return candidate
    pytest.skip(f"no Python {mine} that an ordinary user may start")


def test_all_of_it_holds_for_an_ordinary_user(home: Path) -> None:
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", f"--basetemp={home}/work"]
    tests = [str(ROOT / "tests/sandbox" / module) for module in MODULES]
    done = as_user(home, python_for_everybody(home), "-m", "pytest", *options, *tests, **FEWER)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout, "all of it was skipped: " + done.stdout[-2000:]
