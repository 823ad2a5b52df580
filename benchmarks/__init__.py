"""Benchmarks: how fast, as ratios to a baseline measured in the same run on the same machine.

`make bench` runs them all and writes docs/benchmarks.md. They are not tests: nothing here fails a build.
"""
