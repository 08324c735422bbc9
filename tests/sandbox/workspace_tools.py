"""Tools of the conformance suite that work in the folder that they find themselves in, as coding tools do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

ODD_NAMES = [
    "new\nline",
    "-rf",
    ".hidden",
    "ž中",
    "a b",
    "x" * 200,
    os.fsdecode(b"not\xffutf8"),
    "back\\slash",
    ".wh.x",
]


def _program() -> None:
    with os.fdopen(os.open("run.sh", os.O_CREAT | os.O_WRONLY, 0o755), "w") as file:
        file.write("#!/bin/sh\n")


def _replaced_folder() -> None:
    shutil.rmtree("folder")
    Path("folder").mkdir()
    Path("folder/only").write_text("this")


def _file_to_folder() -> None:
    os.unlink("one")
    os.makedirs("one/deep/down")
    Path("one/deep/down/file").write_text("x")


def _folder_to_file() -> None:
    shutil.rmtree("folder")
    Path("folder").write_text("a file now")


def _folder_to_link() -> None:
    shutil.rmtree("folder")
    os.symlink("two", "folder")


def _sparse() -> None:
    with open("sparse", "wb") as file:
        file.seek(5 << 20)
        file.write(b"end")


def _saved_as_editors_do() -> None:
    Path("one.tmp").write_text("saved")
    os.rename("one", "one~")
    os.rename("one.tmp", "one")
    os.unlink("one~")


def _append() -> None:
    with open("one", "a") as file:
        file.write("more")


def _in_place() -> None:
    with open("one", "r+b") as file:
        file.seek(1)
        file.write(b"X")
        file.truncate(2)


def _made_and_removed() -> None:
    Path("passing").mkdir()
    Path("passing/file").write_text("x")
    shutil.rmtree("passing")


CHANGES: dict[str, Callable[[], Any]] = {
    "create": lambda: Path("new").write_text("fresh"),
    "create empty": lambda: Path("new").touch(),
    "create deep": lambda: (Path("a/b/c").mkdir(parents=True), Path("a/b/c/file").write_text("x")),
    "overwrite": lambda: Path("one").write_text("changed"),
    "overwrite deep": lambda: Path("folder/inner/file").write_text("changed"),
    "append": _append,
    "change in place": _in_place,
    "truncate": lambda: os.truncate("one", 0),
    "delete": lambda: os.unlink("one"),
    "delete deep": lambda: os.unlink("folder/inner/file"),
    "delete a folder": lambda: shutil.rmtree("folder"),
    "make an empty folder": lambda: os.mkdir("new"),
    "rename": lambda: os.rename("one", "three"),
    "rename over another": lambda: os.replace("one", "two"),
    "move into a folder": lambda: os.rename("one", "folder/one"),
    "move a folder": lambda: shutil.move("folder", "moved"),
    "replace a folder": _replaced_folder,
    "file to folder": _file_to_folder,
    "folder to file": _folder_to_file,
    "folder to link": _folder_to_link,
    "symbolic link": lambda: os.symlink("folder/inner", "link"),
    "dangling link": lambda: os.symlink("/nowhere/at/all", "link"),
    "write by a link": lambda: Path("to-one").write_text("by the link"),
    "program": _program,
    "sparse file": _sparse,
    "large file": lambda: Path("large").write_bytes(bytes(range(256)) * 20_000),
    "many files": lambda: [Path(f"file{number}").write_text(str(number)) for number in range(200)],
    "odd names": lambda: [Path(name).write_text("x") for name in ODD_NAMES],
    "save as editors do": _saved_as_editors_do,
    "make and remove": _made_and_removed,
    "nothing": lambda: None,
}
"""Each changes a folder as `tree` in test_overlay.py lays it out."""


def change(how: str) -> list[str]:
    """Make the change; what the tool itself sees afterwards."""
    CHANGES[how]()
    return sorted(os.listdir("."))


def change_twin(how: str) -> None:
    """Change a file that has another name."""
    changes: dict[str, Callable[[], Any]] = {
        "write": lambda: Path("twin").write_text("changed"),
        "append": lambda: os.truncate("twin", 3),
        "delete": lambda: os.unlink("twin"),
        "rename": lambda: os.rename("twin", "one"),
    }
    changes[how]()


def change_and_fail(how: str) -> None:
    CHANGES[how]()
    raise ValueError("after the change")


def write(path: str, text: str) -> str:
    """Write a file, and read it back."""
    Path(path).write_text(text)
    return Path(path).read_text()


def write_elsewhere(folder: str) -> str:
    """Use a private folder and leave something there."""
    Path(folder, "left").write_text("x")
    return "written"


def pass_through(folder: str) -> str:
    """Use a private folder and clean up."""
    path = Path(folder, "passing")
    path.write_text("x")
    text = path.read_text()
    path.unlink()
    return text


def link_and_write(target: str, name: str) -> str:
    """Lay a link that leads out, and follow it."""
    os.symlink(target, "way-out")
    try:
        Path("way-out", name).write_text("x")
    except OSError:
        return "denied"
    return "escaped"
