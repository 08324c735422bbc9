"""The wheel and the source archive hold what they should, and what they hold runs."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["memory", "proxy", "speculators", "tools_sandbox"]


def command(*arguments: str | Path, cwd: Path = ROOT, path: str | Path = "") -> str:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [str(a) for a in arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, builder = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("builder")
    if importlib.util.find_spec("hatchling") is None:
        fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(builder), "hatchling>=1.27"]
        if subprocess.run(fetch, capture_output=True, check=False).returncode:
            pytest.skip("hatchling builds the wheel; it is neither here nor can it be fetched")
    command(sys.executable, "-m", "hatchling", "build", "-d", folder, path=builder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("agentspec_proxy-*.whl"))


def test_the_wheel_holds_one_package_and_all_of_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"agentspec"}
    for package in PACKAGES:
        here = {path.relative_to(ROOT).as_posix() for path in (ROOT / package).rglob("*.py")}
        assert {f"agentspec/{name}" for name in here} <= set(names)
    assert "agentspec/verifier/engine/worker.py" in names
    assert [name for name in names if "__pycache__" in name or name.startswith("agentspec/tests")] == []


def test_the_dashboard_is_in_the_wheel_and_needs_nothing_else(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    assets = ROOT / "proxy" / "dashboard" / "assets"
    here = {path.relative_to(ROOT).as_posix() for path in assets.rglob("*") if path.is_file()}
    assert len(here) > 20
    for name in here:
        assert archive.read(f"agentspec/{name}") == (ROOT / name).read_bytes()
    page = (assets / "index.html").read_text(encoding="utf-8")
    for asked in re.findall(r'(?:src|href)="(/[^"]*)"', page):
        assert asked == "/dashboard" or asked.removeprefix("/dashboard/") in {
            name.removeprefix("proxy/dashboard/") for name in here
        }
    assert "http://" not in page and "https://" not in page
    licence = archive.read("agentspec/proxy/dashboard/assets/vendor/uPlot.LICENSE").decode()
    assert licence.startswith("The MIT License")


def test_the_wheel_is_typed_as_it_says(wheel: Path) -> None:
    assert "agentspec/py.typed" in zipfile.ZipFile(wheel).namelist()


def test_the_wheel_names_its_command_and_its_licence(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    named = {name.split("/")[-1]: archive.read(name).decode() for name in archive.namelist() if ".dist-info" in name}
    assert "agentspec = agentspec.proxy.cli:main" in named["entry_points.txt"]
    assert "Name: agentspec-proxy" in named["METADATA"]
    assert "License-Expression: Apache-2.0" in named["METADATA"]
    assert "LICENSE" in named


def test_the_source_archive_holds_code_tests_and_readme(built: Path) -> None:
    with tarfile.open(next(built.glob("agentspec_proxy-*.tar.gz"))) as archive:
        below = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("pyproject.toml", "README.md", "LICENSE", "agentspec/calls.py", "proxy/cli.py", "tests/packaging"):
        assert any(name == needed or name.startswith(f"{needed}/") for name in below), needed
    assert [name for name in below if name.startswith((".venv", ".git/", "shared"))] == []


def test_the_installed_wheel_runs_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    site = next((tmp_path / "env" / "lib").glob("python3*")) / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    others = [path for path in sys.path if path.endswith("site-packages")]
    ahead = f"import sys; sys.path += {others}; sys.meta_path = [m for m in sys.meta_path if 'ditable' not in repr(m)]"
    code = f"""{ahead}
import agentspec, agentspec.proxy.cli, agentspec.memory.ledger, agentspec.speculators.probe, agentspec.proxy.wiring
assert agentspec.__file__.startswith({str(site)!r}), agentspec.__file__
assert agentspec.proxy.cli.__file__.startswith({str(site)!r}), agentspec.proxy.cli.__file__
assert callable(agentspec.speculate) and callable(agentspec.connect)
sys.argv = ["agentspec", "config", "show"]
agentspec.proxy.cli.main()
"""
    shown = command(python, "-I", "-c", code, cwd=tmp_path)
    assert "upstream_timeout_s" in shown
