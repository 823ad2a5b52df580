"""From a site's nodes to Node objects, and what must change. Pure."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engines.kubernetes.exposed_nodes import (
    SLURM_NAME,
    TAINT,
    Exposed,
    capacity,
    difference,
    name_of,
    node_object,
    plan,
    ready_condition,
)
from isthmus.engines.kubernetes.inventories import inventory
from isthmus.engines.slurm.cluster.inventories import node_state
from isthmus.engines.slurm.facts import SlurmNode
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.sites import SiteNode

from .clusters import merge

NOW = datetime(2026, 1, 31, 18, tzinfo=UTC)
LATER = datetime(2026, 1, 31, 19, tzinfo=UTC)
EXPOSED = Exposed("cluster", "11111111-2222-3333-4444-555555555555", "Slurm 22.05.8")
Object = dict[str, Any]


def node(name: str = "n1", states: tuple[str, ...] = ("IDLE",), **more: Any) -> SiteNode:
    state = node_state(SlurmNode(name, frozenset(states)))
    known = {"cpus": 2, "memory_bytes": 1000 * 2**20, "states": sorted(states), "state": state, **more}
    return SiteNode(name=name, **known)


def device(name: str, gres: str, resource: str | None = None) -> DeviceClass:
    kubernetes = {"kubernetes": {"resource": resource}} if resource else {}
    return DeviceClass.model_validate({"metadata": {"name": name}, "spec": {"slurm": {"gres": gres}, **kubernetes}})


def stored(seen: SiteNode, **metadata: Any) -> Object:
    """As a server would have it."""
    made = copy.deepcopy(node_object(EXPOSED, name_of(seen.name) or "", seen, (), NOW))
    made["metadata"] |= {"resourceVersion": "7", "uid": "u", **metadata}
    return made


def change_of(have: Object, seen: SiteNode) -> Any:
    return difference(have, node_object(EXPOSED, have["metadata"]["name"], seen, (), LATER))


def test_nothing_changes_where_all_is_as_it_should_be() -> None:
    change = change_of(stored(node()), node())
    assert (change.main, change.status) == (None, None)


def test_a_server_writes_amounts_in_its_own_way() -> None:
    have = stored(node())
    have["status"]["capacity"]["memory"] = have["status"]["allocatable"]["memory"] = "1000Mi"
    assert change_of(have, node()).status is None


def test_it_is_not_for_pods() -> None:
    made = stored(node())
    assert made["spec"]["taints"] == [{"key": TAINT, "effect": "NoSchedule"}, {"key": TAINT, "effect": "NoExecute"}]
    assert made["status"]["capacity"]["pods"] == made["status"]["allocatable"]["pods"] == "0"


@pytest.mark.parametrize(
    ("states", "ready", "unschedulable"),
    [
        (("IDLE",), "True", False),
        (("MIXED", "DYNAMIC_NORM"), "True", False),
        (("ALLOCATED", "DRAIN"), "True", True),
        (("IDLE", "DRAIN"), "True", True),
        (("DOWN",), "False", False),
        (("DOWN", "DRAIN", "NOT_RESPONDING"), "False", True),
        (("IDLE", "FAIL"), "False", False),
        (("IDLE", "POWERED_DOWN"), "False", False),
        (("UNKNOWN",), "Unknown", False),
    ],
)
def test_slurms_states(states: tuple[str, ...], ready: str, unschedulable: bool) -> None:
    made = stored(node(states=states))
    assert made["status"]["conditions"][0]["status"] == ready
    assert made["spec"]["unschedulable"] is unschedulable


def test_a_change_of_state_is_a_small_patch_of_the_version_that_was_read() -> None:
    change = change_of(stored(node()), node(states=("IDLE", "DRAIN")))
    assert change.main == {"spec": {"unschedulable": True}, "metadata": {"resourceVersion": "7"}}
    assert change.status is None
    change = change_of(stored(node()), node(states=("DOWN",)))
    assert change.main is None
    assert change.status["metadata"] == {"resourceVersion": "7"}
    condition = change.status["status"]["conditions"][0]
    assert (condition["status"], condition["lastTransitionTime"]) == ("False", "2026-01-31T19:00:00Z")


def test_busy_or_idle_is_no_news() -> None:
    assert change_of(stored(node()), node(states=("ALLOCATED",))).status is None


def test_what_others_put_there_stays() -> None:
    have = stored(node())
    have["metadata"]["labels"]["rack"] = "7"
    have["spec"]["taints"] = [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]
    have["status"]["conditions"].append({"type": "NetworkUnavailable", "status": "False"})
    change = change_of(have, node(states=("DOWN",), features=["board"]))
    assert change.main["metadata"]["labels"] == {"feature.isthmus.dev/board": "true"}
    assert [taint["key"] for taint in change.main["spec"]["taints"]] == ["node.kubernetes.io/not-ready", TAINT, TAINT]
    assert [known["type"] for known in change.status["status"]["conditions"]] == ["NetworkUnavailable", "Ready"]


def test_labels_and_resources_that_are_gone_are_removed() -> None:
    have = stored(node(features=["board"], gres={"gpu": 1}))
    change = change_of(have, node())
    assert change.main["metadata"]["labels"] == {"feature.isthmus.dev/board": None}
    assert change.status["status"]["capacity"] == {"gres.isthmus.dev/gpu": None}


def test_after_heartbeats_stopped() -> None:
    """Kubernetes itself wrote that nothing is known, and conditions that we do not report."""
    have = stored(node())
    have["status"]["conditions"] = [
        {"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown"} for kind in ("MemoryPressure", "Ready")
    ]
    conditions = change_of(have, node()).status["status"]["conditions"]
    assert [(known["type"], known["status"]) for known in conditions] == [("Ready", "True")]


def test_gres_by_class_and_by_their_own_name() -> None:
    classes = [device("a100", "gpu:a100", "nvidia.com/gpu"), device("akida", "board:akida")]
    seen = node(devices={"a100": 4, "akida": 1}, gres={"gpu:a100": 4, "board:akida": 1, "fpga:u250": 2, "shard": 8})
    assert capacity(seen, classes) == {
        "cpu": "2",
        "memory": "1024000Ki",
        "pods": "0",
        "nvidia.com/gpu": "4",
        "isthmus.dev/akida": "1",
        "gres.isthmus.dev/fpga.u250": "2",
        "gres.isthmus.dev/shard": "8",
    }


def test_names() -> None:
    assert name_of("Node_01.Cluster") == "node-01.cluster"
    assert name_of("-x") is None
    made = plan(EXPOSED, [node("A_1"), node("a-1"), node("ü")], (), (), NOW)
    assert [obj["metadata"]["annotations"][SLURM_NAME] for obj in made.create] == ["cluster/A_1"]
    assert len(made.refused) == 2
    assert "as A_1 is" in made.refused[0]


def test_the_plan() -> None:
    """Missing ones are made, others changed, those that left are removed, those that go already are left alone."""
    nodes = [node("n1"), node("n2", ("DOWN",)), node("n3", ("DOWN",))]
    have = [stored(node("n2")), stored(node("n3"), deletionTimestamp="2026-01-31T18:00:00Z"), stored(node("n4"))]
    made = plan(EXPOSED, nodes, (), have, NOW)
    assert [obj["metadata"]["name"] for obj in made.create] == ["n1"]
    assert [change.name for change in made.change] == ["n2"]
    assert [obj["metadata"]["name"] for obj in made.delete] == ["n4"]


def test_a_kubernetes_site_does_not_count_them() -> None:
    shown = stored(node("n1"))
    own = copy.deepcopy(shown)
    own["metadata"] = {"name": "own"}
    found = inventory({"gitVersion": "v1.20.2"}, [shown, own], {})
    assert [known.name for known in found.nodes] == ["own"]


WORDS = st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "DRAIN", "NOT_RESPONDING", "POWERED_DOWN", "UNKNOWN"])
SEEN = st.builds(
    lambda states, features, gres: node(states=tuple(states), features=features, gres=gres),
    st.sets(WORDS, min_size=1),
    st.lists(st.text(alphabet="ab-_./é", max_size=5), max_size=3, unique=True),
    st.dictionaries(st.sampled_from(["gpu", "gpu:a100", "board"]), st.integers(1, 9)),
)


@given(SEEN, SEEN)
def test_a_change_makes_what_is_wanted(before: SiteNode, after: SiteNode) -> None:
    """Merged into what was there, nothing is left to change."""
    have = stored(before)
    change = change_of(have, after)
    merge(have, change.main or {})
    merge(have, change.status or {})
    again = change_of(have, after)
    assert (again.main, again.status) == (None, None)
    assert have["status"]["conditions"][0]["status"] == ready_condition(after)["status"]
