"""What the bundled engine is held to, measured: `agentspec bench verifier`."""
