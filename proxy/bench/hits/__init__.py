"""`agentspec bench hits`: how often memory knows the next tool call, on recordings that it learns from as it goes."""
