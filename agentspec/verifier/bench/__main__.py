"""`python -m agentspec.verifier.bench DEVICE`: the short run on random weights (see `bench/gpu.sh`)."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch

from agentspec.errors import ConfigError
from agentspec.verifier.bench.run import on_device


def main() -> int:
    """Measure on the device that is named, print one JSON object."""
    device = sys.argv[1] if len(sys.argv) > 1 else "auto"
    try:
        with tempfile.TemporaryDirectory() as folder:
            figures = on_device(device, Path(folder), lambda line: print(line, file=sys.stderr, flush=True))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name() if torch.cuda.is_available() and device != "cpu" else "cpu"
    print(json.dumps({"figures": [asdict(figure) for figure in figures], "device": name, "torch": torch.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
