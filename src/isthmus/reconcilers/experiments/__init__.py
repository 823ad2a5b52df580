"""Experiments: one workload over a matrix, made of jobs that the experiment owns.

`reconciler` takes the steps; `plans`, `rules` and `comparing` decide; `searching` proposes parameters.
"""
