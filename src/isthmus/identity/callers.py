"""Caller: who presents a credential, and the roles it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from isthmus.resources.tenants import Role

RANKS: Mapping[Role, int] = {Role.VIEWER: 1, Role.MEMBER: 2, Role.ADMIN: 3}


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whose credential was checked.

    `grants` are roles in single tenants; `platform` is a role in all of them and over what belongs to nobody.
    """

    user: str
    grants: Mapping[str, Role] = field(default_factory=dict)
    platform: Role | None = None
    token: str = ""
    """Name of the token that was presented, for the audit trail."""
    personal: bool = False
    """Whether the platform vouches for the user: a token of a tenant says who its admins like."""

    @property
    def credential(self) -> str:
        """What was presented, for the audit log."""
        return f"token {self.token}" if self.token else ""

    def role_in(self, namespace: str) -> Role | None:
        """The higher of the role there and the platform role."""
        granted = self.grants.get(namespace)
        if granted is None or (self.platform is not None and RANKS[self.platform] > RANKS[granted]):
            return self.platform
        return granted

    def is_owner(self, member: str | None, user: str | None) -> bool:
        """Whether work that this member, or the token of this user where no member is known, created is the caller's.

        What a person made is hers alone: a token of the tenant, which says what its admins like, is not enough.
        """
        if member is not None:
            return self.personal and self.user == member
        return user is not None and self.user == user

    @property
    def is_platform_admin(self) -> bool:
        """Whether nothing is closed to them."""
        return self.platform is Role.ADMIN

    @property
    def groups(self) -> list[str]:
        """The caller's roles in the form that Kubernetes has for them, such as `isthmus:physics:member`."""
        found = [f"isthmus:{namespace}:{role}" for namespace, role in sorted(self.grants.items())]
        if self.platform is not None:
            found.append(f"isthmus:platform:{self.platform}")
        return [*found, "system:authenticated"]


def at_least(role: Role | None, wanted: Role) -> bool:
    """Whether a role includes another."""
    return role is not None and RANKS[role] >= RANKS[wanted]
