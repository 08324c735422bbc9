"""Ends a zygote that imports it."""

from __future__ import annotations

import os
import sys

if "zygote" in sys.argv[0]:
    os._exit(1)


def tool(text: str) -> str:
    return text
