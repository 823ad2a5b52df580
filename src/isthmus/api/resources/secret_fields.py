"""Sealing what is secret in a manifest, on its way to the store: from then on only who has the key can read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus._kit.sealing import Sealer
from isthmus.errors import Unavailable, invalid_field
from isthmus.resources.secrets import place_of

_COPY = "kubectl.kubernetes.io/last-applied-configuration"
"""Where kubectl keeps the whole manifest as it was sent."""


def seal(sealer: Sealer | None, old: Mapping[str, Any] | None, new: dict[str, Any]) -> None:
    """Replace the password of a Secret by its sealed text, and drop every copy of it; raises Invalid, Unavailable."""
    spec = new["spec"]
    place = place_of(new, ((new if old is None else old).get("status") or {}).get("member"))
    if (annotations := new["metadata"].get("annotations")) and annotations.pop(_COPY, None) and not annotations:
        del new["metadata"]["annotations"]
    if sealer is None:
        raise Unavailable("this server has no key to seal secrets with; ask another replica")
    if (password := spec.pop("password", None)) is not None:
        spec["sealed"] = sealer.seal(password, place)
    elif old is not None and spec["sealed"] == old["spec"]["sealed"]:
        return  # as it was, perhaps by an older version
    elif sealer.open(spec["sealed"], place) is None:
        raise invalid_field("spec.sealed", "was not sealed for this object by this platform; send the password again")


def without_sealed(old: Mapping[str, Any]) -> dict[str, Any]:
    """What a patch is made of: its operations could copy the sealed text to where it is shown."""
    return {**old, "spec": {name: value for name, value in old["spec"].items() if name != "sealed"}}


def keep_sealed(old: Mapping[str, Any], sent: dict[str, Any]) -> dict[str, Any]:
    """What was sent without the sealed text, which most callers are not shown, keeps it."""
    spec = sent.get("spec")
    if not isinstance(spec, dict) or spec.get("sealed") or spec.get("password"):
        return sent
    return {**sent, "spec": {**spec, "sealed": old["spec"]["sealed"]}}
