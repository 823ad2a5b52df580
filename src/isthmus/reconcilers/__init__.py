"""One reconciler per kind: given a key, read the present state, decide with a pure function, do one idempotent step.

Belongs here: what is done about the difference between wanted and seen. Decisions about a job's status are in
`lifecycle` (pure), decisions about where jobs go in `scheduling`; effects go through the contracts of `store`,
`engines` and `storage`, and every one of them is guarded by leadership.
"""
