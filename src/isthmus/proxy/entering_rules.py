"""Who may use an instance: who created it, and whom she named. Pure.

Whoever administers the tenant or the platform may stop and delete it, and does not get in.
"""

from __future__ import annotations

from isthmus.identity.authorizing import allowed
from isthmus.identity.callers import Caller
from isthmus.resources.instances import Instance
from isthmus.resources.kinds import INSTANCE


def may_enter(caller: Caller, instance: Instance) -> bool:
    """Whether the caller may use it, now."""
    if not allowed(caller, "get", INSTANCE.plural, instance.namespace, instance.name):
        return False
    status = instance.status
    if caller.is_owner(status.member, status.submitted_by):
        return True
    vouched = caller.personal or status.member is None  # what a token of the tenant says of itself, its admins wrote
    return vouched and caller.user in instance.spec.shared_with
