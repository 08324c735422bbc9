"""Memory, schedule and forward: who runs when, on which blocks."""
