"""One interface over the engines that agentspec can start: bundled, vLLM, SGLang. Nothing here imports torch."""
