"""The dashboard: what ran ahead, what it saved, what it cost and why, for people, in a browser."""
