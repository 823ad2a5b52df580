"""The audit log: who did what, from where, with which credential, and whether it was allowed.

Belongs here: what is kept of an act, the chain of hashes that shows whether a log was changed, and the files it lies
in. Does not: which requests are acts (`api/auditing.py`), and the log of the program itself (`server/journal.py`).
"""
