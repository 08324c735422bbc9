"""Ids of turns, trajectories and bets: unique, not secret, and free of system calls on the hot path."""

from __future__ import annotations

import os
import random
import secrets

_random = random.Random(secrets.randbits(128))


def new_id() -> str:
    """16 hexadecimal digits."""
    return f"{_random.getrandbits(64):016x}"


os.register_at_fork(after_in_child=lambda: _random.seed(secrets.randbits(128)))
