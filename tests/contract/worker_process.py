"""A worker for some tools of `importable`, in a process of its own; says its port."""

from __future__ import annotations

import os

from agentspec import speculate
from agentspec.tools_sandbox.declare import declared
from agentspec.tools_sandbox.tiers.remote import KEY_VARIABLE
from agentspec.tools_sandbox.worker import Worker
from tests.contract import importable

FUNCTIONS = (importable.look_up, importable.look_up_soon, importable.never_ends_ahead, importable.own_pid)

if __name__ == "__main__":
    tools = [speculate(effect="read", stable_for=30.0, sandbox="process")(function) for function in FUNCTIONS]
    worker = Worker([declared(tool) for tool in tools], os.environ[KEY_VARIABLE])
    print(worker.port, flush=True)
    worker.serve()
