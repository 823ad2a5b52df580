"""Who is calling, and what they may do: tokens, memberships, roles.

Belongs here: turning a credential into a `Caller`, and the table of what each role may do. Does not: HTTP, and
rules about the content of objects (`api/resources/admission.py`).
"""

from .authenticating import Authenticator
from .authorizing import allowed
from .callers import Caller

__all__ = ["Authenticator", "Caller", "allowed"]
