"""`python -m agentspec.proxy.demo`: the demo without the command line of the rest."""

from __future__ import annotations

import argparse
import sys

from agentspec.proxy.demo.run import DemoOptions, run_demo
from agentspec.proxy.demo.services import ServiceFailed
from agentspec.proxy.demo.show import show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m agentspec.proxy.demo", description=__doc__)
    parser.add_argument("--model", default="coder05", help="a folder, a Hugging Face id or a short name")
    parser.add_argument("--questions", type=int, help="how many to ask (default: all)")
    parser.add_argument("--repeats", type=int, default=1, help="how often to ask each in each arm")
    parser.add_argument("--keep", action="store_true", help="leave the engine and the proxy running")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    args = parser.parse_args()
    try:
        report = run_demo(DemoOptions(args.model, args.questions, args.repeats, args.keep))
    except ServiceFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return show(report, as_json=args.json)


if __name__ == "__main__":
    sys.exit(main())
