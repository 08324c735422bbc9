"""The bundled token-level backend: a small OpenAI-compatible engine on PyTorch (the only importer of torch).

A request's life, one module per step:

1. `server`      reads HTTP, watches for the client leaving, writes chunks
2. `request`     turns the JSON body into one frozen `Job` (or raises `RequestError`)
3. `text`        renders the chat template and tokenizes; `grammar` compiles the tools into a matcher
4. `engine`      one worker thread: receive -> schedule -> forward -> process
5. `scheduler`   decides, without touching a tensor, which sequences run and how many tokens of each
6. `prefix`      finds the longest prefix that some sequence has already computed; `kv` copies it
7. `forward`     one ragged forward over all of them; `sampling` picks the tokens
8. `toolcalls`   turns text back into OpenAI deltas; `reply` puts them in the API's shapes

Importing this package imports neither torch nor transformers; `serve` does.
"""

from __future__ import annotations

from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.server import serve

__all__ = ["VerifierConfig", "serve"]
