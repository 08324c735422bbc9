"""The OpenAI-compatible HTTP front."""
