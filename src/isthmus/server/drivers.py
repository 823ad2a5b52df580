"""Which driver serves which site. A new engine is one entry here."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus._kit.clock import parse_timestamp
from isthmus._kit.durations import parse_duration
from isthmus._kit.quantities import parse_bytes
from isthmus.config import ServerSettings
from isthmus.engines.agent.contacts import AgentHub
from isthmus.engines.agent.driver import AgentEngine
from isthmus.engines.agent.offers import AgentOffer
from isthmus.engines.agent.settings import AgentSettings
from isthmus.engines.base import Engine
from isthmus.engines.exposing import NodeExposure
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.settings import DeclaredDevices, LocalSettings
from isthmus.engines.slurm.settings import Mapped, RestSettings, SlurmSettings, SshSettings
from isthmus.errors import Misconfigured, SiteUnavailable
from isthmus.resources.hosts import Host
from isthmus.resources.sites import AgentSite, ExposedIn, KubernetesSite, LocalSite, Site, SlurmRest, SlurmSsh
from isthmus.resources.work.python_environments import SitePackages

if TYPE_CHECKING:
    from isthmus.hosts.base import HostDriver
    from isthmus.images.registries import RegistryClient

MakeDriver = Callable[[Site, ServerSettings], Engine]
EXPOSURE_SECONDS = 10.0
"""How long an answer about exposed nodes is waited for: a heartbeat that comes later is none."""


def local(site: Site, settings: ServerSettings) -> Engine:
    """The machine the control plane runs on."""
    spec = site.spec.local or LocalSite()
    here = socket.gethostname()
    if spec.host and spec.host != here:
        raise SiteUnavailable(f"site {site.name} is the machine {spec.host}, and this control plane runs on {here}")
    return LocalEngine(
        LocalSettings(
            root=Path(spec.root) if spec.root else settings.sites / site.name,
            owner=site.uid,
            cpus=spec.cpus,
            memory_bytes=parse_bytes(spec.memory) if spec.memory else None,
            isolation=spec.isolation,
            network=spec.network,
            max_log_bytes=parse_bytes(spec.max_log),
            max_file_bytes=parse_bytes(spec.max_file) if spec.max_file else 0,
            max_image_bytes=parse_bytes(spec.max_images),
            registry_authorities=_authorities(site),
            package_index=_packages(site).index or "",
            wheels=_packages(site).wheels or "",
            max_disk_bytes=parse_bytes(spec.max_disk) if spec.max_disk else 0,
            visible=tuple(Path(folder) for folder in spec.visible),
            devices=tuple(DeclaredDevices(d.class_, d.count, tuple(d.paths)) for d in site.spec.devices),
        )
    )


def slurm(site: Site, settings: ServerSettings) -> Engine:
    """A Slurm cluster."""
    from isthmus.engines.slurm.opening import make_engine  # a platform without Slurm need not load it

    spec = site.spec.slurm
    if spec is None:
        raise Misconfigured(f"site {site.name} wants the driver slurm and has no section slurm")
    return make_engine(
        SlurmSettings(
            folder=spec.folder,
            owner=site.uid,
            accounts=tuple(Mapped(entry.tenant, entry.user, entry.member) for entry in spec.accounts),
            transport=spec.transport,
            conf=spec.conf,
            path=spec.path,
            ssh=_ssh(spec.ssh) if spec.ssh else None,
            rest=_rest(spec.rest) if spec.rest else None,
            account=spec.account or "",
            partitions=tuple(spec.partitions),
            poll_seconds=parse_duration(spec.poll_interval),
            calls_per_second=spec.calls_per_second,
            image_runtimes=tuple(spec.images.runtimes),
            max_image_bytes=parse_bytes(spec.images.max_size),
            layers=settings.sites / site.name / "layers",
            registry_authorities=_authorities(site),
            package_index=_packages(site).index or "",
            wheels=_packages(site).wheels or "",
        )
    )


def _packages(site: Site) -> SitePackages:
    return site.spec.packages or SitePackages()


def _authorities(site: Site) -> str:
    return (site.spec.registries and site.spec.registries.authorities) or ""


def _ssh(spec: SlurmSsh) -> SshSettings:
    return SshSettings(
        host=spec.host,
        user=spec.user,
        key_file=spec.key_file,
        known_hosts=Path(spec.known_hosts_file),
        port=spec.port,
        certificate_file=spec.certificate_file,
        sessions=spec.sessions,
    )


def _rest(spec: SlurmRest) -> RestSettings:
    key = Path(spec.key_file) if spec.key_file else None
    return RestSettings(url=spec.url, user=spec.user, key_file=key, token_file=spec.token_file)


def kubernetes(site: Site, settings: ServerSettings) -> Engine:
    """A Kubernetes cluster."""
    from isthmus.engines.kubernetes.driver import KubernetesEngine  # a platform without Kubernetes need not load it
    from isthmus.engines.kubernetes.settings import KubernetesSettings
    from isthmus.kubernetes.kubeconfigs import in_cluster

    spec = site.spec.kubernetes or KubernetesSite()
    return KubernetesEngine(
        KubernetesSettings(
            folder=settings.sites / site.name,
            site=site.identity,
            kubeconfig=Path(spec.kubeconfig) if spec.kubeconfig else None,
            server=in_cluster(os.environ),
            context=spec.context,
            namespace=spec.namespace,
            image=spec.image,
            helper_image=spec.helper_image,
            pull_policy=spec.pull_policy,
            pull_secrets=tuple(spec.pull_secrets),
            package_index=_packages(site).index or "",
            uid=spec.uid,
            runtime_class=spec.runtime_class,
            node_selector=spec.node_selector,
            priority_classes={entry.priority: entry.name for entry in spec.priority_classes},
            start_seconds=parse_duration(spec.start_timeout),
        )
    )


def host_driver(host: Host) -> HostDriver:
    """What reaches a machine from outside."""
    from isthmus.hosts.redfish.driver import RedfishDriver  # a platform without hosts need not load it

    return RedfishDriver(host.spec.redfish)


def registry_client(authorities: str) -> RegistryClient:
    """What asks registries of container images; it trusts what the system does, and these authorities (PEM)."""
    from isthmus.images.registries import RegistryClient, trusting  # a platform without images need not load it

    return RegistryClient(trusting(authorities))


def agent(agents: AgentHub, offer: AgentOffer | None, site: Site, settings: ServerSettings) -> Engine:
    """A machine that joins by itself."""
    contact = agents.contact(site.name)
    before = site.status.agent.last_contact if site.status.agent else None
    if contact.heard_at is None and before is not None:
        contact.heard_at = parse_timestamp(before)
    spec, packages = site.spec.agent or AgentSite(), _packages(site)
    mine = AgentSettings(
        site.name,
        settings.sites / site.name,
        joined=spec.key is not None,
        offer=offer,
        lost_after=parse_duration(spec.lost_after) if spec.lost_after else None,
        lost_at=parse_timestamp(spec.lost_at) if spec.lost_at else None,
        package_index=packages.index or "",
        wheels=packages.wheels or "",
    )
    return AgentEngine(mine, contact)


DRIVERS: Mapping[str, MakeDriver] = {"local": local, "slurm": slurm, "kubernetes": kubernetes}


class Drivers:
    """Makes engines."""

    def __init__(
        self,
        settings: ServerSettings,
        drivers: Mapping[str, MakeDriver] = DRIVERS,
        *,
        note_root: Callable[[Path], None] | None = None,
        agents: AgentHub | None = None,
        offer: AgentOffer | None = None,
    ) -> None:
        """Without the hub to which agents connect, there are no sites of theirs."""
        self._settings, self._note_root = settings, note_root
        self._drivers: dict[str, MakeDriver] = dict(drivers)
        if agents is not None:
            self._drivers["agent"] = partial(agent, agents, offer)

    async def make(self, site: Site) -> Engine:
        """The engine of a site, not yet opened."""
        make = self._drivers.get(site.spec.driver)
        if make is None:
            known = ", ".join(sorted(self._drivers))
            raise Misconfigured(f"site {site.name} wants the driver {site.spec.driver!r}; there are: {known}")
        engine = make(site, self._settings)
        if self._note_root and isinstance(engine, LocalEngine):
            self._note_root(engine.root)
        return engine

    def expose(self, site: Site, where: ExposedIn, allowed: Callable[[], None]) -> NodeExposure:
        """What shows a site's nodes in a Kubernetes cluster."""
        from isthmus.engines.kubernetes.exposing import KubernetesExposure  # need not be loaded without Kubernetes
        from isthmus.engines.kubernetes.lease_writes import LeaseWrites
        from isthmus.kubernetes import kubeconfigs
        from isthmus.kubernetes.client import KubernetesClient

        access = kubeconfigs.load(Path(where.kubeconfig), where.context) if where.kubeconfig else kubeconfigs.own()
        spec = site.spec.kubernetes or KubernetesSite()
        return KubernetesExposure(
            KubernetesClient(access, EXPOSURE_SECONDS),
            LeaseWrites(access.url, access.context, access.headers, EXPOSURE_SECONDS),
            site.name,
            site.identity,
            heartbeat_seconds=parse_duration(spec.heartbeat_interval),
            allowed=allowed,
        )
