"""Guesses at the next tokens, behind one protocol (`protocol.py`). A wrong guess costs time, never tokens."""
