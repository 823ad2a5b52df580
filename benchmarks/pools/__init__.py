"""Pools that follow demand, replayed: traces of jobs against our planner, a static split and a threshold policy."""
