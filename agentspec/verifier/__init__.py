"""The bundled token-level backend: a small OpenAI-compatible engine on PyTorch (the only importer of torch).

A request's life, one module per step:

1. `server/app`           reads HTTP, watches for the client leaving, writes chunks
2. `server/request`       turns the JSON body into one frozen job (or raises `RequestError`); a response becomes a chat
3. `server/turns`         renders the template (`text`) and compiles what the answer may hold (`verification/grammar`)
4. `engine/worker`        one worker thread: receive -> schedule -> forward -> process
5. `engine/scheduler`     decides, without touching a tensor, which sequences run, how many tokens of each, and on which
                          blocks; `engine/paging` shares what is already computed (`engine/radix`), nothing is copied
6. `engine/speculation`   asks the drafters, and verifies what pays (`engine/budget`); `engine/branching` lays it out
7. `engine/forward`       one ragged forward over all of them; `verification/accept` picks the tokens
8. `server/assembler`     turns tokens back into text, thinking and calls; `server/reply` puts them in the API's shapes

`drafting` guesses tokens ahead, `adapters` start other engines behind the same interface.

Importing this package imports neither torch nor transformers; `serve` does.
"""

from __future__ import annotations

from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.server.app import serve

__all__ = ["VerifierConfig", "serve"]
