"""From logits to tokens: what may come, what is picked, and how much of a draft stands."""
