"""The demo: a small real model answers questions with slow tools, once without agentspec and once through it."""
