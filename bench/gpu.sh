#!/usr/bin/env bash
# One short run of the bundled engine on a GPU (DEVICE=cpu: here, to try it): random weights, nothing is fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHONPATH=. exec "${PYTHON:-python3}" -m agentspec.verifier.bench "${DEVICE:-cuda}"
