"""The suite where users run it: as an ordinary user, and in a container that denies mounts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.sandbox import under_filter

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NOBODY = 65534


@pytest.fixture
def home() -> Iterator[Path]:
    """A home outside /tmp, of which a run sees a copy only."""
    folder = Path("/var/tmp") / f"agentspec-home-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def suite(command: list[str], modules: list[str], home: Path, python: str = sys.executable) -> tuple[int, str]:
    """Run modules of this suite in another process; its exit status and what it printed."""
    files = [str(HERE / f"{name}.py") for name in modules]
    options = ["-q", "-rs", "-p", "no:cacheprovider", f"--basetemp={home}/pytest", f"--rootdir={ROOT}"]
    done = subprocess.run(
        [*command, python, "-B", "-m", "pytest", *options, *files],
        cwd=ROOT,
        env=environment(home, {}),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def interpreter_of(user: list[str]) -> str | None:
    """An interpreter of our version that this user can run: ours, or the system's with our packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        if subprocess.run([*user, "test", "-x", path], check=False).returncode == 0:
            return path
    return None


def environment(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    packages = os.pathsep.join([str(ROOT), sysconfig.get_paths()["purelib"]])
    return {**kept, "HOME": str(home), "PYTHONPATH": packages, **more}


@pytest.mark.skipif(os.getuid() != 0, reason="this is an ordinary user already")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is not here")
def test_an_ordinary_user_gets_the_same_promises(home: Path) -> None:
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    python = interpreter_of(user)
    if python is None:
        pytest.skip("an ordinary user can run no interpreter of this version")
    code, printed = suite(user, ["test_surroundings", "test_others", "test_overlay"], home, python)
    assert code == 0, printed[-4000:]
    assert " passed" in printed


def test_where_mounts_are_denied_the_overlay_is_missing_and_all_else_holds(home: Path) -> None:
    denied = [sys.executable, str(HERE / "under_filter.py")]
    code, printed = suite(denied, ["test_surroundings", "test_overlay"], home)
    assert code == 0, printed[-4000:]
    assert "T2: " in printed
    assert "denied here" in printed


def test_the_doctor_says_why_the_overlay_is_missing_and_what_to_do(home: Path) -> None:
    command = [sys.executable, under_filter.__file__, sys.executable, "-m", "agentspec.proxy", "doctor", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment(home, {}), capture_output=True, text=True, check=True)
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["tier T1"]["works"]
    assert not found["tier T2"]["works"]
    assert "Operation not permitted" in found["tier T2"]["advice"]
    assert "--security-opt" in found["tier T2"]["advice"]
