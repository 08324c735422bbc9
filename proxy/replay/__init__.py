"""Recorded trajectories played again: a model endpoint that answers from a recording, and an agent that follows one."""
