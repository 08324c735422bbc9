"""Agents in processes of their own, as seen from a test."""

from __future__ import annotations

import subprocess
import sys


class OtherAgent:
    """`agent_process`, which joins proxies one after the other."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.contract.agent_process"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.pid = self._process.pid

    def join(self, proxy: str, api_key: str = "k", redis: str = "-") -> None:
        self.say(f"join {proxy} {api_key} {redis}", "connected")

    def expect(self, answer: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == answer

    def say(self, command: str, answer: str | None = None) -> None:
        """Send a command; wait for its answer if one is named."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        if answer is not None:
            self.expect(answer)

    def write(self, tool: str, order_id: str = "A1") -> None:
        """A whole write, from its begin to its end."""
        self.say(f"write {tool} {order_id}", "written")

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """As the kernel does it when memory is short."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        return self._process.wait(10)

    def close(self) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
