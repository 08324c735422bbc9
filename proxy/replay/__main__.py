"""`python -m agentspec.proxy.replay FILE...`: the recorded endpoint, without the rest of the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from agentspec.errors import ConfigError
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.serve import serve_recorded


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and serve; the exit status says whether it could start."""
    parser = argparse.ArgumentParser(
        prog="python -m agentspec.proxy.replay",
        description="Serve recorded trajectories as an OpenAI-compatible endpoint.",
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="recorded trajectories, gzip JSON Lines")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--tokens-per-s", type=float, default=Pace.tokens_per_s, help="`inf` sends all at once")
    parser.add_argument("--ttft-ms", type=float, default=Pace.ttft_ms, help="time to the first token")
    given = parser.parse_args(arguments)
    try:
        serve_recorded(*given.files, host=given.host, port=given.port, pace=Pace(given.tokens_per_s, given.ttft_ms))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
