"""`agentspec bench claims`: claims, writes, cancels and crashes in every order that a seed makes, and an oracle."""
