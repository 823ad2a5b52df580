"""The status of a site: what was seen is written, and what nobody looked at stays."""

from __future__ import annotations

from datetime import UTC, datetime

from isthmus.engines.base import Capabilities, Inventory
from isthmus.reconcilers.sites.reconciler import abilities, capabilities, reachable, unreachable
from isthmus.resources.frame.meta import Condition, ConditionStatus
from isthmus.resources.frame.states import SitePhase
from isthmus.resources.sites import Capacity, ExposedIn, Site, SiteNode, SiteStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class LaterStatus(SiteStatus):
    """The status of a later version: this one has never heard of its last field."""

    of_later: str | None = None


def a_site() -> Site:
    site = Site.model_validate(
        {"kind": "Site", "metadata": {"name": "s", "uid": "u", "generation": 3}, "spec": {"driver": "local"}}
    )
    shown = Condition(type="NodesExposed", status=ConditionStatus.TRUE)
    site.status = LaterStatus(
        message="was away", identity="old", exposed_in=ExposedIn(kubeconfig="/k"), conditions=[shown], of_later="kept"
    )
    return site


def test_what_is_not_looked_at_survives_a_look() -> None:
    seen = Inventory(version="1", capacity=Capacity(cpus=4), nodes=(SiteNode(name="n", engine_resources={"gpu": 2}),))
    for status in (reachable(a_site(), seen, NOW), unreachable(a_site(), "gone", NOW)):
        assert (status.identity, status.exposed_in) == ("old", ExposedIn(kubeconfig="/k"))
        assert isinstance(status, LaterStatus)
        assert status.of_later == "kept"
        assert [known.type for known in status.conditions] == ["NodesExposed", "Ready"]
    assert reachable(a_site(), seen, NOW).message is None
    assert reachable(a_site(), seen, NOW).phase is SitePhase.READY


def test_what_an_engine_counts_itself_keeps_its_name_outside() -> None:
    node = SiteNode.model_validate({"name": "n", "gres": {"gpu:a100": 2}})
    assert node.engine_resources == {"gpu:a100": 2}
    assert node.to_json()["gres"] == {"gpu:a100": 2}


def test_abilities_are_read_back_as_they_were_written() -> None:
    site = a_site()
    for able in (Capabilities(), Capabilities(queues=True, images=True, needs_image=True, multi_node=True)):
        site.status.abilities = abilities(able)
        assert capabilities(site) == able
