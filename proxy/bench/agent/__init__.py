"""`agentspec bench agent`: does agentspec ever cost time, and how much of what could be saved does it save?"""
