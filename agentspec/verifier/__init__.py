"""The bundled token-level backend: a small OpenAI-compatible engine on PyTorch (the only importer of torch)."""
