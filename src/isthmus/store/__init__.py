"""Where objects live: the contract (`base`), SQLite, PostgreSQL, and what they share.

Belongs here: keeping objects, versions, watches, ownership. Does not: what an object means.
"""
