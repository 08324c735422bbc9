"""When a bet is taken, what its confidence is worth, and what holds it back: pure rules and small measured state."""
