"""The cluster's file system, and what the driver keeps on it.

`base` says what is asked of it; `shared` (mounted here) and `remote` (over SSH) each answer. `records` is the form of a
run's record, `logs` serves any number of readers of a log, `trips` bundles small calls to the disk.
"""
