"""Roles, and the verbs that they may be given. A role includes those below it."""

from __future__ import annotations

from enum import StrEnum

READ = frozenset({"get", "list", "watch"})
WRITE = frozenset({"create", "update", "patch", "delete", "deletecollection"})
EVERY_VERB = READ | WRITE
NOTHING: frozenset[str] = frozenset()


class Role(StrEnum):
    """What a member may do: viewers read, members also run work, admins also manage tokens and members."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"
