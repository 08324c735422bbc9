"""Run a program under a filter that denies namespaces and mounts, as a container's default profile does.

python under_filter.py PROGRAM ARGUMENTS...
"""

from __future__ import annotations

import ctypes
import os
import sys

from agentspec.tools_sandbox.kernel import calls, seccomp

_DENIED = (
    *("mount", "umount2", "pivot_root", "unshare", "setns", "mount_setattr", "open_tree", "move_mount"),
    *("fsopen", "fsconfig", "fsmount", "fspick"),
)


def install() -> None:
    program = seccomp._Program()
    program.load_number()
    for name in _DENIED:
        program.refuse_call(name)
    program.add(seccomp._RET, seccomp._ALLOW)
    buffer = ctypes.create_string_buffer(b"".join(program.code))
    filter_ = seccomp._Fprog(len(program.code), ctypes.addressof(buffer))
    calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
    calls.syscall("seccomp", seccomp._SET_MODE_FILTER, 0, ctypes.byref(filter_))


if __name__ == "__main__":
    install()
    os.execv(sys.argv[1], sys.argv[1:])
