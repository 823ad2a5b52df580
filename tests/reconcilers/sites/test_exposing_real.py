"""Nodes of a real Slurm, seen in a real Kubernetes: what its own controllers and scheduler make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.lab.kubernetes.control_plane import LabControlPlane
from isthmus.lab.kubernetes.lab_client import LabClient
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import NodeSpec
from isthmus.lab.slurm.registering import manifests
from isthmus.testing.kubectl import Kubectl, debian_kubectl
from isthmus.testing.servers import ServerProcess, eventually, running_server

pytestmark = [pytest.mark.real, pytest.mark.kubernetes]
SITES = "/apis/isthmus.dev/v1/sites"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
Object = dict[str, Any]


def register(server: ServerProcess, slurm: SlurmLab, kubeconfig: Path, name: str = "lab") -> None:
    for obj in manifests(slurm.place, name):
        if obj["kind"] == "Site":
            where = {"kubeconfig": str(kubeconfig), "heartbeatInterval": "2s"}
            obj["spec"] |= {"exposeNodes": True, "kubernetes": where, "probeInterval": "1s"}
            server.request(SITES, obj)
        elif name == "lab":
            server.request("/apis/isthmus.dev/v1/deviceclasses", obj)


@pytest.fixture(scope="module")
def server(
    slurm: SlurmLab, cluster: LabControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("server") / "data") as running:
        register(running, slurm, cluster.place.site_kubeconfig)
        yield running


def ours(asker: LabClient) -> dict[str, Object]:
    found = asker.ask(f"{NODES}?labelSelector=app.kubernetes.io%2Fmanaged-by%3Disthmus")["items"]
    return {node["metadata"]["name"]: node for node in found}


def ready(node: Object) -> str:
    return next((str(c["status"]) for c in node["status"]["conditions"] if c["type"] == "Ready"), "")


def taints(node: Object) -> set[tuple[str, str]]:
    return {(taint["key"], taint["effect"]) for taint in node["spec"].get("taints", ())}


def condition(server: ServerProcess, name: str = "lab") -> Object:
    found: list[Object] = server.request(f"{SITES}/{name}")["status"].get("conditions", [])
    return next((known for known in found if known["type"] == "NodesExposed"), {})


def wait(what: str, found: Callable[[], Any]) -> Any:
    """Wait for something with a name."""
    try:
        return eventually(found, timeout=100)
    except AssertionError:
        raise AssertionError(f"{what} did not happen") from None


@pytest.fixture
def shown(server: ServerProcess, slurm: SlurmLab, asker: LabClient) -> list[str]:
    """The four nodes, shown and in order."""
    names = [slurm.place.node_name(index) for index in range(1, 5)]
    wait("all nodes Ready", lambda: sorted(n for n, o in ours(asker).items() if ready(o) == "True") == names)
    wait("the condition", lambda: condition(server).get("status") == "True")
    return names


def test_they_are_shown_with_what_they_have(
    shown: list[str], asker: LabClient, server: ServerProcess, cluster: LabControlPlane, tmp_path: Path
) -> None:
    board, gpu, plain, _ = (ours(asker)[name] for name in shown)
    assert board["status"]["capacity"] == {"cpu": "2", "memory": "1000Mi", "pods": "0", "isthmus.dev/akida": "1"}
    assert gpu["status"]["allocatable"]["isthmus.dev/a100"] == "1"
    assert "isthmus.dev/akida" not in plain["status"]["capacity"]
    labels = board["metadata"]["labels"]
    assert labels["isthmus.dev/site"] == server.request(f"{SITES}/lab")["metadata"]["uid"]
    assert labels["feature.isthmus.dev/board"] == labels["partition.isthmus.dev/boards"] == "true"
    assert {("isthmus.dev/slurm", "NoSchedule"), ("isthmus.dev/slurm", "NoExecute")} <= taints(board)
    kubectl = Kubectl(debian_kubectl(), tmp_path, cluster.kubeconfig)
    lines = kubectl.run("get", "nodes").stdout.splitlines()
    line = next(line.split() for line in lines if line.startswith(shown[0]))
    assert (line[1], line[2], line[4]) == ("Ready", "slurm", "slurm-22.05.8")
    leases = [lease for lease in asker.ask(LEASES)["items"] if lease["metadata"]["name"] in shown]
    assert {lease["metadata"]["ownerReferences"][0]["kind"] for lease in leases} == {"Node"}
    before = {lease["metadata"]["name"]: lease["spec"]["renewTime"] for lease in leases}

    def renewed() -> bool:
        now = {lease["metadata"]["name"]: lease["spec"]["renewTime"] for lease in asker.ask(LEASES)["items"]}
        return len(before) == 4 and all(now[name] > moment for name, moment in before.items())

    wait("a heartbeat of every node", renewed)


def test_drained_is_unschedulable_and_down_is_not_ready(shown: list[str], slurm: SlurmLab, asker: LabClient) -> None:
    slurm.call("scontrol", "update", f"nodename={shown[2]}", "state=drain", "reason=test")
    slurm.call("scontrol", "update", f"nodename={shown[3]}", "state=down", "reason=test")
    wait("drained", lambda: ours(asker)[shown[2]]["spec"].get("unschedulable"))
    wait("in order all the same", lambda: ready(ours(asker)[shown[2]]) == "True")
    wait("down", lambda: ready(ours(asker)[shown[3]]) == "False")
    not_ready = ("node.kubernetes.io/not-ready", "NoExecute")
    wait("Kubernetes' own taint", lambda: not_ready in taints(ours(asker)[shown[3]]))
    for name in shown[2:]:
        slurm.call("scontrol", "update", f"nodename={name}", "state=resume")
    slurm.call("scontrol", "reconfigure")  # has every node answer at once
    wait("not drained", lambda: not ours(asker)[shown[2]]["spec"].get("unschedulable"))
    wait("up", lambda: ready(ours(asker)[shown[3]]) == "True")
    wait("no taint", lambda: not_ready not in taints(ours(asker)[shown[3]]))
    assert ("isthmus.dev/slurm", "NoExecute") in taints(ours(asker)[shown[3]])


def test_one_that_joins_and_leaves(shown: list[str], slurm: SlurmLab, asker: LabClient) -> None:
    name = slurm.place.node_name(5)
    slurm.add(NodeSpec(name, gres=("gpu:a100:1",)))
    wait("the new node", lambda: name in ours(asker))
    slurm.remove(name)
    wait("its end", lambda: name not in ours(asker))
    wait("its Lease's end", lambda: name not in [lease["metadata"]["name"] for lease in asker.ask(LEASES)["items"]])
    assert set(shown) <= set(ours(asker))


def test_a_foreign_node_of_the_same_name_is_not_touched(
    shown: list[str], slurm: SlurmLab, asker: LabClient, server: ServerProcess
) -> None:
    name = slurm.place.node_name(6)
    asker.ask(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"whose": "theirs"}}})
    slurm.add(NodeSpec(name))
    try:
        reported = wait("the refusal", lambda: condition(server).get("status") == "False" and condition(server))
        assert name in reported["message"]
        assert "not ours" in reported["message"]
        assert server.request(f"{SITES}/lab")["status"]["phase"] == "Ready"
        foreign = asker.ask(f"{NODES}/{name}")
        assert "isthmus.dev/site" not in foreign["metadata"]["labels"]
        assert ("isthmus.dev/slurm", "NoExecute") not in taints(foreign)
        managers = {entry["manager"] for entry in foreign["metadata"]["managedFields"]}
        assert not any("httpx" in manager for manager in managers)
    finally:
        slurm.remove(name)
    wait("the condition", lambda: condition(server).get("status") == "True")
    assert asker.ask(f"{NODES}/{name}")["metadata"]["labels"]["whose"] == "theirs"
    asker.ask(f"{NODES}/{name}", method="DELETE")


def test_slurm_that_does_not_answer(shown: list[str], slurm: SlurmLab, asker: LabClient, server: ServerProcess) -> None:
    slurm.stop_controller()
    try:
        wait("the condition", lambda: condition(server).get("status") == "Unknown")
        wait("Kubernetes' own doubt", lambda: {ready(node) for node in ours(asker).values()} == {"Unknown"})
        assert sorted(ours(asker)) == shown
    finally:
        slurm.start_controller()
    wait("all nodes Ready", lambda: sorted(n for n, o in ours(asker).items() if ready(o) == "True") == shown)
    assert [c["type"] for c in ours(asker)[shown[0]]["status"]["conditions"]] == ["Ready"]


def test_killed_and_started_again(shown: list[str], asker: LabClient, server: ServerProcess) -> None:
    uids = {name: node["metadata"]["uid"] for name, node in ours(asker).items()}
    server.kill()
    asker.ask(f"{NODES}/{shown[0]}", method="DELETE")
    server.start()
    wait("the deleted one", lambda: sorted(ours(asker)) == shown)
    again = {name: node["metadata"]["uid"] for name, node in ours(asker).items()}
    assert [again[name] for name in shown[1:]] == [uids[name] for name in shown[1:]]
    wait("all nodes Ready", lambda: sorted(n for n, o in ours(asker).items() if ready(o) == "True") == shown)


def test_no_pod_gets_there(shown: list[str], asker: LabClient) -> None:
    """Not by chance, not by a DaemonSet, and not by tolerating everything. A foreign node shows that they would run."""
    place = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "theirs"}}
    asker.ask(NODES, place | {"status": {
        "capacity": {"cpu": "8", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }})  # fmt: skip
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "10m"}}}
    everything = [{"operator": "Exists"}]
    asker.ask("/apis/apps/v1/namespaces/default/daemonsets", daemon("ordinary", {"containers": [container]}))
    asker.ask(
        "/apis/apps/v1/namespaces/default/daemonsets",
        daemon("tolerant", {"containers": [container], "tolerations": everything}),
    )
    wait("the account", lambda: asker.ask("/api/v1/namespaces/default/serviceaccounts")["items"])
    aimed = {"kubernetes.io/os": "linux", "node-role.kubernetes.io/slurm": ""}
    pods = "/api/v1/namespaces/default/pods"
    for name, more in (("aimed", {}), ("aimed-tolerant", {"tolerations": everything})):
        spec = {"containers": [container], "nodeSelector": aimed, **more}
        asker.ask(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    def decided() -> bool:
        """Every pod was looked at by the scheduler."""
        found = asker.ask(pods)["items"]
        kinds = {pod["metadata"].get("generateName", pod["metadata"]["name"]) for pod in found}
        judged = all(pod["status"].get("conditions") for pod in found)
        return judged and kinds == {"ordinary-", "tolerant-", "aimed", "aimed-tolerant"} and len(found) >= 8

    wait("a decision about every pod", decided)
    found = asker.ask(pods)["items"]
    placed = {
        pod["metadata"].get("generateName"): pod["spec"]["nodeName"] for pod in found if "nodeName" in pod["spec"]
    }
    assert placed == {"ordinary-": "theirs", "tolerant-": "theirs"}
    assert sum(pod["metadata"].get("generateName") == "ordinary-" for pod in found) == 1
    reported = {
        pod["metadata"]["name"]: pod["status"]["conditions"][0]["message"]
        for pod in found
        if "aimed" in str(pod["metadata"])
    }
    assert "isthmus.dev/slurm" in reported["aimed"]
    assert "Too many pods" in reported["aimed-tolerant"]


def daemon(name: str, spec: Object) -> Object:
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    chosen = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": chosen, "template": template},
    }


def test_a_cluster_that_does_not_answer(
    shown: list[str], server: ServerProcess, slurm: SlurmLab, cluster: LabControlPlane, asker: LabClient, tmp_path: Path
) -> None:
    away = tmp_path / "away.kubeconfig"
    cluster.authority.kubeconfig(away, f"https://127.0.0.1:{cluster.place.port(6)}", "isthmus", "isthmus")
    register(server, slurm, away, "away")
    reported = wait(
        "the condition", lambda: condition(server, "away").get("status") == "False" and condition(server, "away")
    )
    assert "does not answer" in reported["message"]
    wait("the site itself", lambda: server.request(f"{SITES}/away")["status"]["phase"] == "Ready")
    server.submit("goes-on", "true", placement={"sites": ["away"]})
    assert server.finished("goes-on")["phase"] == "Succeeded"
    # It answers again, by a kubeconfig that was mended: now the names are another site's.
    cluster.authority.kubeconfig(away, cluster.url, "isthmus", "isthmus")
    reported = wait(
        "the refusal", lambda: condition(server, "away").get("reason") == "Refused" and condition(server, "away")
    )
    assert "0 nodes are shown, 4 are not" in reported["message"]
    server.request(f"{SITES}/away", method="DELETE")
    wait("the site's end", lambda: "away" not in [s["metadata"]["name"] for s in server.request(SITES)["items"]])
    assert sorted(ours(asker)) == shown


def test_off_and_on_and_gone(shown: list[str], server: ServerProcess, asker: LabClient) -> None:
    server.request(f"{SITES}/lab", {"spec": {"exposeNodes": False}}, method="PATCH")
    wait("the end of all", lambda: not ours(asker))
    wait("no condition", lambda: not condition(server))
    wait("no Lease", lambda: not {lease["metadata"]["name"] for lease in asker.ask(LEASES)["items"]} & set(shown))
    server.request(f"{SITES}/lab", {"spec": {"exposeNodes": True}}, method="PATCH")
    wait("all nodes", lambda: sorted(ours(asker)) == shown)
    server.request(f"{SITES}/lab", method="DELETE")
    wait("the end of all", lambda: not ours(asker))
    wait("the site's end", lambda: "lab" not in [s["metadata"]["name"] for s in server.request(SITES)["items"]])
