"""The machinery of reconciling: informers, work queue, backoff, leader election, the loop.

Belongs here: how keys reach a reconciler and how often. Does not: what a reconciler decides.
"""
