"""How much priority a caller may give a job. Pure.

Priority orders the jobs of one tenant; between tenants the shares decide (`scheduling/shares.py`). Sites with queues of
their own may be shown the priority too, so it is bounded by role. A tenant's quota may set another bound for all of its
people. What a job has already may stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.errors import Forbidden
from isthmus.identity.callers import Caller
from isthmus.resources.tenants import Role

OF_A_MEMBER, OF_AN_ADMIN = 1_000, 10_000

Object = Mapping[str, Any]


def check_priority(caller: Caller, namespace: str, quota: int | None, old: Object | None, new: Object) -> None:
    """Raise Forbidden for a priority above what the caller may give."""
    wanted = _priority(new)
    if wanted <= 0 or caller.is_platform_admin or (old is not None and wanted <= _priority(old)):
        return
    by_role = OF_AN_ADMIN if caller.role_in(namespace) is Role.ADMIN else OF_A_MEMBER
    most = by_role if quota is None else quota
    if wanted > most:
        whose = "the quota of the tenant" if quota is not None else "your role"
        raise Forbidden(
            f"spec.priority: {wanted} is above {most}, the highest that {whose} allows; "
            "choose a lower one, or ask a platform admin"
        )


def _priority(obj: Object) -> int:
    """Of a job, or of the jobs that an experiment makes."""
    spec = obj.get("spec") or {}
    template = spec.get("template") if obj.get("kind") == "Experiment" else spec
    found = (template or {}).get("priority", 0)
    return found if isinstance(found, int) else 0
