"""`python -m agentspec.verifier --model M`: the bundled verifier as a server of its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from agentspec.errors import ConfigError
from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.server.app import serve


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and serve; the exit status is 2 when a setting is wrong."""
    parser = argparse.ArgumentParser(prog="python -m agentspec.verifier", description=__doc__)
    parser.add_argument("--model", required=True, help="a folder, a Hugging Face id, or coder05, coder15, smol135")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    parser.add_argument("--served-model-name", help="the name requests use (default: the model's)")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--max-batch", type=int, default=16, help="sequences per forward")
    parser.add_argument("--max-context", type=int, help="tokens per sequence (default: the model's limit)")
    parser.add_argument("--threads", type=int, help="CPU threads for torch")
    parser.add_argument(
        "--speculate", default="auto", help="auto, off, or of external,ngram,suffix,draft_model,layer_skip some"
    )
    parser.add_argument("--draft-model", help="a smaller model that drafts tokens")
    parser.add_argument("--log-level", default="warning")
    try:
        serve(VerifierConfig(**vars(parser.parse_args(argv))))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
