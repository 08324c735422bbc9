"""Memory, schedule, drafts and forward: who runs when, on which blocks, with which guesses."""
