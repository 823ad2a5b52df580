"""Deadlines at the lowest cost: which jobs run now, on which machine, with how many devices.

A snapshot goes in, a plan comes out; the simulator strings plans together over time. Here belong the models, the
lower bound, the methods and the simulator. Not here: files, tables and plots (`isthmus bench scheduling` in
`cli/`), the clock, and where profiles come from. Randomised methods are given their seed.
"""
