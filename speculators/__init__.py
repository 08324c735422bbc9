"""Who predicts the next tool call: the probe (self-speculation) and what memory has seen."""
