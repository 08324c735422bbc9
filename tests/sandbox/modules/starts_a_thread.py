"""Starts a thread as soon as it is imported."""

from __future__ import annotations

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()


def tool(text: str) -> str:
    return text
