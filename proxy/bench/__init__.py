"""Benchmarks: every figure that the project claims has a command here that prints it."""
