"""Fakes and contract suites for drivers and stores, and the real programs the tests talk to.

Belongs here: what a test of another project could use too. Does not: tests.
"""
