"""Instances: one job for each start, stopped when nobody uses it. What is decided is in `starting_rules`."""
