"""Small things that a plain call does to its workspace, and that a committed run must do alike."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from agentspec.errors import ToolRefused
from tests.sandbox import commit_tools
from tests.sandbox.support import OVERLAY
from tests.sandbox.trees import clear, copy_of, lay_out, timeless, tree_of

pytestmark = OVERLAY

HIDE = "os.mkdir('nn'); Path('nn/file').write_text('x'); os.chmod('nn', 0)"
CLOSED = "os.makedirs('shut/inner'); Path('shut/inner/file').touch(); os.chmod('shut/inner', 0o555)"
OPENED = "os.chmod('shut/inner', 0o755); shutil.rmtree('shut')"
OURS = "[Path(f'.agentspec-{number}').write_text('mine') for number in range(4)]"

CASES: dict[str, tuple[str, str]] = {  # what is done to the workspace before, and by the run
    "one of everything": ("", "from tests.sandbox.commit_tools import rework; rework()"),
    "the workspace's own mode": ("", "os.chmod('.', 0o700)"),
    "the workspace's own attribute": ("", "os.setxattr('.', 'user.test', b'1')"),
    "the workspace's own attribute goes": ("os.setxattr('.', 'user.test', b'1')", "os.removexattr('.', 'user.test')"),
    "the workspace's mode is seen": ("os.chmod('.', 0o2770)", "Path('seen').write_text(oct(os.stat('.').st_mode))"),
    "the group that is inherited": ("os.chown('.', -1, 65534); os.chmod('.', 0o2775)", "Path('made').touch()"),
    "the group that a folder passes on": (
        "os.chown('deep', -1, 65534); os.chmod('deep', 0o2775)",
        "os.makedirs('deep/x/y')",
    ),
    "a name like ours is made": ("", OURS),
    "a name like ours is there": (OURS, "Path('kept').write_text('x'); Path('z').touch()"),
    "a name of a file with several is removed": ("", "os.unlink('twin')"),
    "a file with several names moves": ("", "os.rename('twin', 'moved')"),
    "a file with several names is written": ("", "Path('twin').write_text('x')"),
    "a file with several names goes, another comes": ("", "os.unlink('twin'); Path('other').write_text('x')"),
    "a file gets a second name": ("", "os.link('kept', 'deep/kept')"),
    "a folder's attribute changes": (
        "os.setxattr('deep', 'user.test', b'1')",
        "os.setxattr('deep', 'user.test', b'2')",
    ),
    "a folder's attribute goes": ("os.setxattr('deep', 'user.test', b'1')", "os.removexattr('deep', 'user.test')"),
    "a file's attribute goes": ("os.setxattr('kept', 'user.test', b'1')", "os.removexattr('kept', 'user.test')"),
    "special modes": ("", "os.chmod('kept', 0o6755); os.mkdir('s'); os.chmod('s', 0o3777)"),
    "a file that nobody may read": ("", "Path('a').touch(); os.chmod('kept', 0); Path('z').touch()"),
    "a folder that nobody may enter": ("", HIDE),
    "an old folder that nobody may enter now": ("", "Path('a').touch(); os.chmod('gone', 0)"),
    "a closed folder is removed": (CLOSED, f"Path('a').touch(); {OPENED}; Path('z').touch()"),
    "names are exchanged": ("", "os.rename('kept', 't'); os.rename('modified', 'kept'); os.rename('t', 'modified')"),
    "a file where an emptied folder was": (
        "",
        "os.unlink('emptied/file'); os.rmdir('emptied'); os.rename('kept', 'emptied')",
    ),
    "a link where a tree was": ("", "shutil.rmtree('deep'); os.symlink('kept', 'deep')"),
    "a tree where a link was": ("", "os.unlink('link'); os.makedirs('link/a'); os.link('kept', 'link/a/kept')"),
    "the longest name": ("", "Path('n' * 255).write_text('x')"),
    "times of folders": ("", "os.mkdir('old'); os.utime('old', (5, 5)); os.utime('empty', (6, 6))"),
    "everything goes": (
        "os.chmod('closed', 0o755)",
        "[shutil.rmtree(x) if os.path.isdir(x) and not os.path.islink(x) else os.unlink(x) for x in os.listdir('.')]",
    ),
}
MAY_BE_REFUSED = {name for name in CASES if "several names" in name or "nobody" in name or "closed" in name}


@pytest.mark.parametrize("case", CASES)
def test_a_commit_does_what_the_plain_call_does(place: Any, tmp_path: Path, case: str) -> None:
    before, code = CASES[case]
    workspace, plain = place.workspace, tmp_path / "plain"
    clear(workspace)
    lay_out(workspace)
    with contextlib.chdir(workspace):
        try:
            commit_tools.run_python(before)
        except PermissionError:
            pytest.skip("not permitted to this user")
    copy_of(workspace, plain)
    old = tree_of(workspace)
    with contextlib.chdir(plain):
        commit_tools.run_python(code)
    started = place.start(commit_tools.run_python, code=code, in_workspace=True)
    started.wait(10.0).value()
    try:
        started.commit()
    except ToolRefused:
        assert case in MAY_BE_REFUSED
        assert tree_of(workspace) == old
    else:
        assert timeless(readable(workspace)) == timeless(readable(plain))
        assert [os.stat(workspace / n).st_mtime for n in ("old", "empty") if case == "times of folders"] in ([], [5, 6])
    assert [path for path in place.tier.home(str(workspace)).iterdir() if path.is_dir()] == []


def readable(folder: Path) -> dict[str, tuple[Any, ...]]:
    """The tree, with its modes; those that shut its owner out are opened afterwards."""
    shut = [path for path in (folder / "nn", folder / "gone", folder / "kept") if path.exists()]
    modes = {path.name: path.stat().st_mode for path in shut}
    for path in shut:
        path.chmod(path.stat().st_mode | 0o700)
    return {**tree_of(folder), "modes": ("modes", *modes.items())}
