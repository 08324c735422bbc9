"""The HTTP front: serves the agent, owns one turn from request to outcome, wires the concrete classes."""
