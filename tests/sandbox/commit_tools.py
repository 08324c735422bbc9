"""Tools of the commit checks: they change the tree of `trees.lay_out` in every way that an overlay knows."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.sandbox.trees import ODD, OLD_NS


def rework() -> None:
    """Change one of everything."""
    _files()
    _folders()
    _links()
    for name in ODD:
        Path("deep", name).write_bytes(b"changed")
    os.utime("timed", ns=(OLD_NS + 7, OLD_NS + 7))


def _files() -> None:
    Path("modified").write_text("changed, and longer than it was")
    with open("in-place", "r+b") as file:
        file.write(b"T")
    Path("large").write_bytes(bytes(range(255, -1, -1)) * 1000)
    os.unlink("removed")
    Path("new").write_text("new")
    Path("new-empty").touch()
    os.chmod("moded", 0o751)
    os.chmod("read-only", 0o644)
    Path("read-only").write_text("written to")
    os.chmod("read-only", 0o444)
    os.unlink("to-folder")
    os.makedirs("to-folder/a/b")
    Path("to-folder/a/b/file").write_text("where a file was")
    Path("deep/a/b/c/d/file").write_text("changed deep down")
    Path("deep/a/b/c/d/new").write_text("new deep down")


def _folders() -> None:
    shutil.rmtree("to-file")
    Path("to-file").write_text("where a folder was")
    shutil.rmtree("opaque")
    os.makedirs("opaque/inner")
    Path("opaque/inner/other").write_text("other")
    shutil.rmtree("gone")
    os.unlink("emptied/file")
    os.rmdir("empty")
    os.makedirs("new-folder/empty")
    os.chmod("closed", 0o755)
    Path("closed/new").write_text("new")
    os.chmod("closed", 0o555)
    os.mkdir("new-closed")
    Path("new-closed/file").write_text("x")
    os.chmod("new-closed/file", 0o444)
    os.chmod("new-closed", 0o555)
    os.chmod("emptied", 0o700)


def _links() -> None:
    os.unlink("link")
    os.symlink("modified", "link")
    os.unlink("to-link")
    os.symlink("/nowhere/at/all", "to-link")
    os.unlink("link-to-folder")
    os.mkdir("link-to-folder")
    Path("pair").write_text("two names")
    os.link("pair", "deep/a/pair")
    os.link("pair", "opaque/pair")
    os.rename("pipe", "moved-pipe")
    os.chmod("moved-pipe", 0o600)


def run_python(code: str) -> None:
    """Do something in the workspace."""
    exec(code, {"os": os, "shutil": shutil, "Path": Path})


def scribble(seconds: float) -> None:
    """Change files again and again."""
    end_s = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end_s:
        Path("kept").write_text(str(number))
        os.makedirs(f"made/{number}/deep")
        number += 1


def start_programs() -> None:
    """Leave programs running, some of them in sessions of their own."""
    for number in range(4):
        subprocess.Popen(["sleep", "300"], start_new_session=number % 2 == 0)


def hide() -> None:
    """Leave files and folders that not even their owner may read or change."""
    os.makedirs("hidden/a/b")
    Path("hidden/a/b/file").write_text("x")
    os.chmod("hidden/a/b/file", 0)
    os.chmod("hidden/a/b", 0)
    os.chmod("hidden/a", 0o555)
    os.chmod("hidden", 0o111)
