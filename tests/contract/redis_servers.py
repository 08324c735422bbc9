"""The Redis that is there, and servers of a test's own that can be stopped."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import redis

from tests.contract.scripted import eventually

REDIS = "redis://127.0.0.1:6379/0"
BINARY = shutil.which("redis-server")


def away(url: str) -> bool:
    client = redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)
    try:
        return not client.ping()
    except redis.RedisError:
        return True
    finally:
        client.close()


def forget(url: str, tenant: str) -> None:
    """Remove what a tenant left."""
    with redis.Redis.from_url(url) as client:
        prefix = f"agentspec:{hashlib.sha256(tenant.encode()).hexdigest()[:16]}"
        for key in client.scan_iter(f"{prefix}:*"):
            client.delete(key)


class RedisServer:
    """A server on a port of its own, that keeps its data over a restart if `folder` is given to both."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        assert BINARY is not None
        command = [BINARY, "--port", str(self.port), "--dir", str(self._folder), "--bind", "127.0.0.1"]
        options = ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "no"]
        self._process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(lambda: not away(self.url), "Redis is up")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def lose_everything(self) -> None:
        """As after a restart without its files."""
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def hang(self) -> None:
        """It is there and says nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        if not self.ended:
            os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        self.go_on()
        self.stop()
