"""Deadlines at the lowest cost: which jobs run now, on which machine, with how many devices.

A snapshot goes in, a plan comes out (`optimising`). Here belong the models and the parts of the optimiser. Not here:
the methods it is compared with and the simulator (`benchmarks/scheduling`), the clock, and where profiles come from.
"""
