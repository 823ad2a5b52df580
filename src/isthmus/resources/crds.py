"""The kinds as CustomResourceDefinitions (apiextensions.k8s.io/v1), made from the same models as everything else.

A server refuses by schema what the models refuse, as far as its language goes:

- types, bounds, patterns, enums and required fields come from `schemas.structural_schema`;
- `RULES` adds what only the models' own code checks. Each rule has a form that every server since 1.20 reads, or
  one in CEL that says the model's own sentence (servers since 1.25), or both;
- what neither can say is found by the operator, which reports it on the object with the same sentence.

The status has a default, so that a new object has a phase before the operator has looked at it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from .kinds import JOB, KINDS, SITE, TENANT, Column, Kind
from .meta import GROUP
from .schemas import GROUP_VERSION_KIND, Schema, structural_schema

OLDEST, NEWEST = 20, 36
"""The minor versions of Kubernetes 1.x that are supported."""
CEL_SINCE, SELECTABLE_SINCE = 25, 31
VALIDATIONS = "x-kubernetes-validations"
MANAGED_BY = {"app.kubernetes.io/name": "isthmus", "app.kubernetes.io/managed-by": "isthmus"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One check of a model's own code, said to an API server."""

    kind: Kind
    path: str
    """Where: names joined by dots, `[]` for the items of a list; empty for the whole object."""
    schema: Schema = field(default_factory=dict)
    """For every server."""
    cel: str = ""
    """For servers since 1.25."""
    message: str = ""
    """The sentence of the model."""


_BELOW_DEV = {"pattern": "^/dev/", "not": {"pattern": r"(^|/)\.\.(/|$)"}}
RULES = (
    Rule(
        JOB,
        "spec",
        {"oneOf": [{"required": ["command"]}, {"required": ["script"]}]},
        "has(self.command) != has(self.script)",
        "give exactly one of command (a list of words) and script (a text)",
    ),
    Rule(
        JOB,
        "spec",
        cel="!has(self.command) || !has(self.args) || size(self.args) == 0",
        message="args belong to a script; append them to command",
    ),
    Rule(JOB, "spec.command", {"minItems": 1, "maxItems": 10_000}, message="must name a program"),
    Rule(JOB, "spec.args", {"maxItems": 10_000}),
    Rule(JOB, "spec.script", {"pattern": r"\S"}, message="is empty"),
    Rule(
        JOB,
        "spec.outputs[]",
        {"minLength": 1, "not": {"pattern": r"^/|(^|/)\.\.(/|$)"}},
        message="must be a pattern below the job's own folder, such as out/*.csv",
    ),
    Rule(
        JOB,
        "spec.env[].name",
        {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": {"pattern": "^ISTHMUS_"}},
        message="must consist of letters, digits and _ and not begin with a digit",
    ),
    Rule(
        JOB,
        "spec.array.indices",
        {"pattern": r"^ *[0-9]+(-[0-9]+(:[0-9]+)?)?( *, *[0-9]+(-[0-9]+(:[0-9]+)?)?)* *$"},
        message="is not an index or a range; write 0-99, 1,3,5 or 0-100:10",
    ),
    Rule(
        SITE,
        "spec",
        {"anyOf": [{"properties": {"driver": {"not": {"enum": ["slurm"]}}}}, {"required": ["slurm"]}]},
        "self.driver != 'slurm' || has(self.slurm)",
        "driver slurm needs the section slurm, with at least a folder",
    ),
    Rule(
        SITE,
        "spec.slurm",
        cel="self.transport != 'SSH' || has(self.ssh)",
        message="transport SSH needs the section ssh with host, user, keyFile and knownHostsFile",
    ),
    Rule(
        SITE,
        "spec.slurm",
        cel="self.transport != 'REST' || has(self.rest)",
        message="transport REST needs the section rest with url and keyFile or tokenFile",
    ),
    Rule(
        SITE,
        "spec",
        {
            "anyOf": [
                {"properties": {"driver": {"enum": ["slurm"]}}},
                {"properties": {"exposeNodes": {"enum": [False]}}},
            ]
        },
        "!self.exposeNodes || self.driver == 'slurm'",
        "exposeNodes shows the nodes of a Slurm site; remove it, or set driver to slurm",
    ),
    Rule(SITE, "spec.slurm.accounts[].user", {"not": {"enum": ["root", "0"]}}, message="jobs never run as root"),
    Rule(SITE, "spec.devices[].paths[]", _BELOW_DEV, message="must be below /dev"),
    Rule(TENANT, "spec.localAccount.user", {"not": {"enum": ["root", "0"]}}, message="jobs never run as root"),
    Rule(
        TENANT,
        "metadata.name",
        {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
        message="cannot be a tenant's name, which is a namespace",
    ),
    Rule(
        TENANT,
        "metadata.name",
        {"not": {"pattern": "^(isthmus|kube)-"}},
        message="is reserved for the platform; choose another",
    ),
)


def custom_kinds() -> list[Kind]:
    """The kinds that Kubernetes does not have by itself."""
    return [kind for kind in KINDS.values() if kind.group == GROUP]


def custom_resource(kind: Kind, minor: int = OLDEST) -> dict[str, Any]:
    """The definition of a kind for servers from 1.`minor` on; one for 1.20 is understood by all."""
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(kind, minor)},
        "subresources": _subresources(kind),
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
    }
    for part in ("subresources", "additionalPrinterColumns"):
        if not version[part]:  # a server leaves an empty one out, and would then see a change in every repetition
            del version[part]
    if minor >= SELECTABLE_SINCE and kind.fields:
        version["selectableFields"] = [{"jsonPath": f".{path}"} for path in kind.fields]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource, "labels": dict(MANAGED_BY)},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "plural": kind.plural,
                "singular": kind.singular,
                "kind": kind.name,
                "listKind": kind.list_kind,
                "shortNames": list(kind.short_names),
                "categories": list(kind.categories),
            },
            "versions": [version],
        },
    }


def custom_resources(minor: int = OLDEST) -> list[dict[str, Any]]:
    """The definitions of all kinds."""
    return [custom_resource(kind, minor) for kind in custom_kinds()]


def _schema(kind: Kind, minor: int) -> Schema:
    schema = structural_schema(kind)
    del schema[GROUP_VERSION_KIND]
    _drop_empty_defaults(schema)
    if (status := _initial_status(kind.model)) is not None:
        schema["properties"]["status"]["default"] = status
    for rule in RULES:
        if rule.kind is kind:
            _apply(schema, rule, minor)
    return schema


def _drop_empty_defaults(schema: Schema) -> None:
    """Servers of 1.20 take an empty text as a default for null, and refuse it. The models fill it in anyway."""
    if schema.get("default") == "":
        del schema["default"]
    for part in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(part, dict):
            _drop_empty_defaults(part)


def _initial_status(model: type[BaseModel]) -> Any:
    made = (
        model.model_fields["status"].get_default(call_default_factory=True) if "status" in model.model_fields else None
    )
    return made.to_json() if made is not None else None


def _apply(schema: Schema, rule: Rule, minor: int) -> None:
    place = _at(schema, rule.path)
    for word, value in rule.schema.items():
        if word in place and word in ("not", "anyOf", "oneOf"):
            place.setdefault("allOf", []).append({word: value})
        else:
            place[word] = value
    if rule.cel and minor >= CEL_SINCE:
        place.setdefault(VALIDATIONS, []).append({"rule": rule.cel, "message": rule.message})


def _at(schema: Schema, path: str) -> Schema:
    for part in _parts(path):
        schema = schema["items"] if part == "[]" else schema.setdefault("properties", {}).setdefault(part, {})
    return schema


def _parts(path: str) -> Iterable[str]:
    for word in path.split("."):
        yield word.removesuffix("[]")
        if word.endswith("[]"):
            yield "[]"


def _subresources(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {"status": {}} if kind.has_status else {}
    if kind.scale is not None:
        wanted, seen = kind.scale
        found["scale"] = {"specReplicasPath": wanted, "statusReplicasPath": seen}
    return found


def _column(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.priority:
        found["priority"] = column.priority
    if column.description:
        found["description"] = column.description
    return found
