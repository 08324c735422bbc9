"""Other engines behind one interface: how each is started, asked how it is, probed, cancelled and handed drafts.

`protocol` says what an adapter is, `registry` finds one by name; `bundled`, `vllm` and `sglang` are the three. An
adapter holds no connection: what goes to a running turn's engine is described (`EngineRequest`) and sent by whoever has
the way to it. Nothing here imports torch, vLLM or SGLang.
"""
