"""Tells what past trajectories teach: stores and tables that speculators read through protocols."""
