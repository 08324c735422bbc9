"""The bundled token-level backend: a small OpenAI-compatible engine on PyTorch (the only importer of torch).

A request's life, one module per step:

1. `server/app`           reads HTTP, watches for the client leaving, writes chunks
2. `server/request`       turns the JSON body into one frozen `Job` (or raises `RequestError`)
3. `text`                 renders the template and tokenizes; `verification/grammar` compiles tools into a matcher
4. `engine/worker`        one worker thread: receive -> schedule -> forward -> process
5. `engine/scheduler`     decides, without touching a tensor, which sequences run and how many tokens of each
6. `engine/prefix`        finds the longest prefix that some sequence has already computed; `engine/kv` copies it
7. `engine/forward`       one ragged forward over all of them; `verification/sampling` picks the tokens
8. `server/toolcalls`     turns text back into OpenAI deltas; `server/reply` puts them in the API's shapes

`drafting` guesses tokens ahead, `adapters` start other engines behind the same interface.

Importing this package imports neither torch nor transformers; `serve` does.
"""

from __future__ import annotations

from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.server.app import serve

__all__ = ["VerifierConfig", "serve"]
