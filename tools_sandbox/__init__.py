"""Tools and where they run ahead: the decorator, the claim table, the runtime and its tiers."""
