"""Texts in new work that only a site would refuse: names of images, and expressions that can never hold. Pure.

A rule of the models holds for what is stored, too, so a stricter one would make jobs of an older version unreadable.
These are looked at once, when work is created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isthmus.errors import Invalid, invalid_field
from isthmus.images.references import parse_reference
from isthmus.resources.kinds import EXPERIMENT, JOB, Kind
from isthmus.resources.work.expressions import parse_expression, unordered

Object = Mapping[str, Any]


def check_texts(kind: Kind, new: Object) -> None:
    """Raise Invalid for the first text of a job or an experiment that no site could use."""
    for field, image in _images(kind, new):
        try:
            parse_reference(image)
        except Invalid as error:
            raise invalid_field(field, error.causes[0].message) from None
    for field, spec in _specs(kind, new):
        expression = (spec.get("placement") or {}).get("expression")
        if expression and (wrong := unordered(parse_expression(expression))):
            message = f"{wrong} compares with what is no number; write a number, or == and a text"
            raise invalid_field(f"{field}.placement.expression", message)


def _specs(kind: Kind, new: Object) -> Iterator[tuple[str, Object]]:
    """The descriptions of jobs in an object."""
    if kind is JOB:
        yield "spec", new["spec"]
    elif kind is EXPERIMENT:
        yield "spec.template", new["spec"]["template"]


def _images(kind: Kind, new: Object) -> Iterator[tuple[str, str]]:
    for field, spec in _specs(kind, new):
        if image := spec.get("image"):
            yield f"{field}.image", image
    if kind is EXPERIMENT:
        for at, image in enumerate((new["spec"].get("matrix") or {}).get("images") or ()):
            yield f"spec.matrix.images[{at}]", image
