"""What every kind is made of: metadata, field types, phases, roles, the declaration, and how JSON is checked.

Nothing here is about one kind; what only jobs and what is made of them share is in `work`.
"""
