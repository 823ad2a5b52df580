"""Every kind, on every surface: what it declares is there in its model, and whatever is general has heard of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from isthmus.api.openapi.whole import document
from isthmus.api.resources.targets import all_views, find_target
from isthmus.cli.app import COMMANDS, listings
from isthmus.cli.columns import columns_of
from isthmus.client.places import place_of
from isthmus.console.pages.kinds import is_listed
from isthmus.console.rendering import navigation
from isthmus.identity.authorizing import EVERY_VERB, allowed, tables
from isthmus.identity.callers import Caller
from isthmus.resources.frame.roles import Role
from isthmus.resources.jobs import DIGEST_PATTERN
from isthmus.resources.kinds import KINDS, TENANT, Kind, kind_named, of_tenants, owners_first, register
from isthmus.resources.schemas.crds import custom_resources
from isthmus.resources.schemas.documents import structural_schema
from isthmus.resources.work.paths import replaced_at, steps_of, values_at

every = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
GENERATE = Path(__file__).parents[2] / "docs" / "generate.py"


def schema_at(kind: Kind, path: str) -> Any:
    """The schema of the field at a path; None if the model has none."""
    found: Any = structural_schema(kind)
    for step in steps_of(path.lstrip(".")):
        match step:
            case "[]":
                found = found.get("items")
            case "{}":
                found = found.get("additionalProperties")
            case _ if found.get("properties") is None:
                return {}  # metadata, which is Kubernetes' own
            case _:
                found = found["properties"].get(step)
        if found is None:
            return None
    return found


def leaves(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field with its path."""
    for name, part in (schema.get("properties") or {}).items():
        yield from leaves(part, f"{path}.{name}" if path else name)
    for mark, word in (("[]", "items"), ("{}", "additionalProperties")):
        if isinstance(schema.get(word), dict):
            yield from leaves(schema[word], path + mark)
    if "properties" not in schema:
        yield path, schema


@every
def test_what_it_declares_is_in_its_model(kind: Kind) -> None:
    assert kind.model.model_fields["kind"].default == kind.name
    assert kind.has_status == ("status" in kind.model.model_fields)
    paths = [*kind.trees, *kind.blobs, *(reference.path for reference in kind.refers)]
    paths += [kind.identity] if kind.identity else []
    paths += [column.path for column in kind.columns]
    if kind.custom:  # of Kubernetes' own kinds clients may select more than we keep
        paths += kind.fields
    assert [path for path in paths if schema_at(kind, path) is None] == []
    for field in (*(kind.changes or ()), *(kind.rights.fields or ())):
        assert schema_at(kind, f"spec.{field}") is not None, field
    for field, phases in (kind.changes or {}).items():
        assert phases is None or phases <= set(kind.phases), field
    for named in (*kind.owns, *(reference.kind for reference in kind.refers)):
        assert named in KINDS


@every
def test_contents_and_uids_in_its_model_are_declared(kind: Kind) -> None:
    """A digest that the sweeper does not know of is lost after a day; a uid that the import does not, is wrong."""
    for path, schema in leaves(structural_schema(kind)):
        if schema.get("pattern") == DIGEST_PATTERN:
            assert path in (*kind.trees, *kind.blobs)
        if kind.custom and path.rpartition(".")[2] == "uid" and schema["type"] == "string":
            assert path in {reference.path for reference in kind.refers if reference.by_uid}


@every
def test_its_phases_are_those_of_its_status(kind: Kind) -> None:
    phase = schema_at(kind, "status.phase") if kind.has_status else None
    assert [str(name) for name in kind.phases] == list((phase or {}).get("enum") or ())
    assert list(kind.transitions) == list(kind.phases)
    for after in kind.transitions.values():
        assert after <= set(kind.phases)
    if kind.phases:
        assert isinstance(next(iter(kind.phases)), StrEnum)


@every
def test_its_rights(kind: Kind) -> None:
    for role in Role:
        assert kind.rights.of(role) <= EVERY_VERB
        caller = Caller("ada", {"physics": role})
        held = frozenset().union(*(kind.rights.of(r) for r in list(Role)[: list(Role).index(role) + 1]))
        name = "physics" if kind.rights.by_name else "x"
        for verb in EVERY_VERB:
            wanted = verb in held | kind.rights.everybody
            assert allowed(caller, verb, kind.plural, "physics" if kind.namespaced else "", name) is wanted
            if verb not in kind.rights.everybody:
                assert not allowed(caller, verb, kind.plural, "chemistry" if kind.namespaced else "", "chemistry")
    if not kind.served:
        assert not any(kind.plural in table for table in tables().in_tenant.values())


@every
def test_work_is_of_a_tenant_and_says_whose(kind: Kind) -> None:
    if kind.work:
        assert kind.namespaced
        assert kind.status_has("member")
    if kind.only_in:
        assert kind.namespaced
        assert not kind.served


@every
def test_it_moves_after_what_it_belongs_to_and_goes_with_its_tenant(kind: Kind) -> None:
    order = owners_first()
    assert set(order) == set(KINDS.values())
    above = [KINDS[reference.kind] for reference in kind.refers if reference.by_uid]
    above += [owner for owner in KINDS.values() if kind.name in owner.owns]
    above += [TENANT] if kind.namespaced else []
    assert all(order.index(other) <= order.index(kind) for other in above)
    assert (kind in of_tenants()) == (kind.namespaced and not kind.only_in)


@every
def test_the_api_and_kubernetes_know_it(kind: Kind) -> None:
    views = all_views().get((kind.group, kind.version), {})
    assert (kind.plural in views) == kind.served
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"{root}/namespaces/physics/{kind.plural}/x" if kind.namespaced else f"{root}/{kind.plural}/x"
    target = find_target(place)
    assert (target is not None and target.view.kind is kind) == kind.served
    assert (kind.name in document()["components"]["schemas"]) == kind.served
    assert (kind.resource in {made["metadata"]["name"] for made in custom_resources()}) == kind.custom


@every
def test_the_command_line_and_the_console_know_it(kind: Kind) -> None:
    assert is_listed(kind.plural) == kind.served
    in_navigation = {entry[0] for entry in navigation(True)}
    assert (kind.plural in in_navigation) == (kind.navigation is not None)
    if not kind.served:
        return
    for word in (kind.name, kind.plural, *kind.short_names):
        assert kind_named(word) is kind
        assert place_of(word).kind == kind.name
    first = (kind.listing or kind.plural).split()[0]
    assert (first in COMMANDS) != (first in listings())
    assert columns_of(kind.name)


def test_keys_of_the_navigation_open_one_page_each() -> None:
    keys = [key for *_, key in navigation(True) if key]
    assert len(set(keys)) == len(keys)


@every
def test_the_reference_tells_of_it(kind: Kind) -> None:
    spec = importlib.util.spec_from_file_location("generate", GENERATE)
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert (f"\n## {kind.name}\n" in generate.kinds_page()) == (kind.served and kind.custom)
    assert (f"\n## {kind.name}\n" in generate.states_page()) == bool(kind.phases)


def test_a_name_is_taken_once() -> None:
    words = [word for kind in KINDS.values() for word in (kind.singular, kind.plural, *kind.short_names)]
    assert len(set(words)) == len(words)
    with pytest.raises(ValueError, match="share a name"), register(Kind("Other", "jobs", TENANT.model, True)):
        raise AssertionError("registered")


def test_a_registered_kind_is_gone_after_its_block() -> None:
    with register(Kind("Gadget", "gadgets", TENANT.model, True)) as kind:
        assert KINDS["Gadget"] is kind
        assert kind in of_tenants()
        assert kind_named("gadget") is kind
    assert "Gadget" not in KINDS
    assert kind not in of_tenants()


def test_kinds_that_own_each_other_have_no_order() -> None:
    one = Kind("One", "ones", TENANT.model, True, owns=("Two",))
    two = Kind("Two", "twos", TENANT.model, True, owns=("One",))
    with register(one), register(two), pytest.raises(ValueError, match="circle: One, Two"):
        owners_first()


def test_values_at_a_path() -> None:
    obj = {"a": [{"b": 1}, {"b": None}, {"c": 2}, 3], "m": {"x": {"b": 4}, "y": {"b": 5}}, "n": None}
    assert list(values_at(obj, "a[].b")) == [1]
    assert list(values_at(obj, "m{}.b")) == [4, 5]
    assert list(values_at(obj, "n.b")) == list(values_at(obj, "m[].b")) == list(values_at(obj, "missing.b")) == []
    changed = replaced_at(obj, "a[].b", lambda value: value + 1)
    assert changed["a"] == [{"b": 2}, {"b": None}, {"c": 2}, 3]
    assert obj["a"][0] == {"b": 1}, "the original stays as it was"
    assert replaced_at(obj, "m{}.b", str)["m"] == {"x": {"b": "4"}, "y": {"b": "5"}}
    assert replaced_at(obj, "n.b", str) == obj
