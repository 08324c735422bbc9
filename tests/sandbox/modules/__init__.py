"""Modules that cannot be forked from."""
