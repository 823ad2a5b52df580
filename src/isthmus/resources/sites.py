"""Site: a place that runs work, through a driver. Its status is the inventory of what is there."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from .frame.declarations import AGE, PUBLIC, Column, Kind, Navigation, Reference
from .frame.fields import ADMIN_ONLY, Duration, Memory
from .frame.meta import Condition, Model, Resource, ShortName, Time
from .frame.states import SITE_PHASES, SITE_TRANSITIONS, SitePhase
from .schemas.crd_rules import SITE_RULES
from .work.python_environments import SitePackages


class SiteDevice(Model):
    """Devices that an administrator declares, for drivers that cannot find them by themselves."""

    class_: ShortName = Field(alias="class")
    count: int = Field(default=1, ge=1, le=10_000)
    paths: Annotated[list[str], ADMIN_ONLY] = Field(
        default_factory=list, description="device files, one for each unit or all for all"
    )

    @field_validator("paths")
    @classmethod
    def _device_files(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not path.startswith("/dev/") or ".." in path.split("/"):
                raise ValueError(f"{path!r} must be below /dev")
        return paths


class LocalSite(Model):
    """The machine that the control plane itself runs on."""

    root: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None, description="folder of the runs; none means below the data folder"
    )
    host: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None, description="the machine it is; none means wherever first started"
    )
    cpus: float | None = Field(default=None, gt=0, description="cpus to offer; none means all")
    memory: str | None = Field(default=None, description="memory to offer; none means nine tenths")
    isolation: Literal["Required", "Preferred", "BestEffort", "None"] = Field(
        default="Preferred",
        description="whether jobs run in a sandbox (bubblewrap). Where there is none, Required lets no job run, "
        "Preferred those of the tenant default, BestEffort those of all tenants; None never uses one",
    )
    network: Literal["Auto", "Private", "Host", "None"] = Field(
        default="Auto",
        description="what jobs see. Private: a network of their own, from which they reach others and nobody reaches "
        "them (slirp4netns); Host: that of the machine with its loopback; None: a loopback of their own only. "
        "Auto means Private where the machine can, else Host",
    )
    max_log: Memory = Field(
        default="1Gi",
        description="of each log of a job; a longer one loses its middle. Never more than a quarter of the free space",
    )
    max_file: Memory | None = Field(
        default=None, description="of each file that a job writes, its logs too; none means as much as the disk has"
    )
    max_disk: Memory | None = Field(
        default=None,
        description="that the working folder and /tmp of a job take on the disk; a job that takes more is ended "
        "(DiskLimit). None means the tenant's quota of storage. Never more than nine tenths of the free space",
    )
    max_images: Memory = Field(
        default="50Gi",
        description="of all container images that are kept unpacked; beyond it, those not used for longest go",
    )
    visible: list[Annotated[str, StringConstraints(max_length=4096)]] = Field(
        default_factory=list,
        max_length=64,
        description="folders that jobs may read besides the system's own, such as /data",
    )

    @field_validator("visible")
    @classmethod
    def _absolute(cls, folders: list[str]) -> list[str]:
        for folder in folders:
            if not folder.startswith("/") or folder == "/" or ".." in folder.split("/"):
                raise ValueError(f"{folder!r} must be the whole path of a folder, and not all of the machine")
        return folders


UserName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_.-]{0,31}$")]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9_./+@-]{1,200}$")]


class SlurmAccount(Model):
    """Under which account of the cluster jobs run. Entries for one tenant, or one member, come before others."""

    tenant: str = Field(description="name of the tenant; * stands for all", max_length=253)
    member: str = Field(
        default="*",
        description="who submits; * stands for any text, such as *@example.org",
        min_length=1,
        max_length=253,
    )
    user: str = Field(
        description="the account; {member} stands for what * stands for in member, {tenant} for the tenant's name",
        max_length=64,
    )
    shared: bool = Field(default=False, description="whether several people may have this one account")

    @model_validator(mode="after")
    def _a_person_each(self) -> Self:
        if "*" in self.member and "{member}" not in self.user and not self.shared:
            raise ValueError(
                "gives several people one account: name the member, write {member} in user, "
                "or set shared: true if they may change each other's files"
            )
        return self

    @field_validator("member")
    @classmethod
    def _one_star(cls, member: str) -> str:
        if member.count("*") > 1:
            raise ValueError("may contain one * only")
        return member

    @field_validator("user")
    @classmethod
    def _never_root(cls, user: str) -> str:
        if user in ("root", "0"):
            raise ValueError("jobs never run as root; name the person's own account")
        if not re.fullmatch(r"[a-z_{][a-z0-9_.{}-]{0,63}", user):
            raise ValueError("must be the name of an account, or contain {member} or {tenant}")
        return user


class SlurmSsh(Model):
    """The login node, reached by SSH. Host keys are always verified."""

    host: str = Field(min_length=1, max_length=253)
    port: int = Field(default=22, ge=1, le=65535)
    user: UserName = Field(description="the account that asks for the state of all jobs")
    key_file: str = Field(description="private key on the control plane; {user} stands for the account")
    certificate_file: str | None = Field(default=None, description="its certificate; {user} stands for the account")
    known_hosts_file: str = Field(description="keys of the host, as in ~/.ssh/known_hosts")
    sessions: int = Field(default=8, ge=1, le=100, description="at once over one connection; others queue")


class SlurmRest(Model):
    """slurmrestd. Its version is found out."""

    url: str = Field(description="http://host:port, https://…, or unix:/path/of/socket", max_length=512)
    user: UserName = Field(default="root", description="the account that asks for the state of all jobs")
    key_file: str | None = Field(default=None, description="the site's jwt_hs256.key: tokens are made for each person")
    token_file: str | None = Field(default=None, description="a ready token; {user} stands for the account")

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        if not url.startswith(("http://", "https://", "unix:/")):
            raise ValueError("must begin with http://, https:// or unix:/")
        return url


ImageRuntime = Literal["charliecloud", "bubblewrap", "podman", "proot"]


class SlurmImages(Model):
    """Container images at a Slurm cluster: each person unpacks them, below the site's folder."""

    runtimes: list[ImageRuntime] = Field(
        default=["charliecloud", "bubblewrap", "podman", "proot"],
        max_length=4,
        description="what may run them on the nodes, best first; an empty list means that the site runs no images",
    )
    max_size: Memory = Field(
        default="50Gi",
        description="of all images that one person has unpacked; beyond it, those not used for longest go",
    )


class SlurmSite(Model):
    """A Slurm cluster, and how it is reached."""

    transport: Literal["Auto", "Command", "SSH", "REST"] = Field(
        default="Auto",
        description="its command line on this machine, over SSH, or slurmrestd; Auto uses what is described here, "
        "each for what it does best",
    )
    folder: Annotated[AbsolutePath, ADMIN_ONLY] = Field(
        description="on a file system that all its nodes see; runs and their logs are here"
    )
    accounts: Annotated[list[SlurmAccount], ADMIN_ONLY] = Field(default_factory=list, max_length=10_000)
    conf: Annotated[AbsolutePath | None, ADMIN_ONLY] = Field(
        default=None, description="slurm.conf; none means the system's own"
    )
    path: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None, description="folders of Slurm's commands, such as /opt/slurm/bin"
    )
    ssh: Annotated[SlurmSsh | None, ADMIN_ONLY] = Field(
        default=None, description="its login node, for commands, and for files where there is no shared folder"
    )
    rest: Annotated[SlurmRest | None, ADMIN_ONLY] = None
    account: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None, description="whom the site charges when a job does not say"
    )
    partitions: list[str] = Field(
        default_factory=list, max_length=256, description="the only partitions to use, best first; none means any"
    )
    images: SlurmImages = Field(default_factory=SlurmImages)
    poll_interval: Duration = Field(default="1s", description="between looks at all jobs while any of ours is there")
    calls_per_second: float = Field(default=200, gt=0, description="the most that Slurm is asked, in the long run")

    @model_validator(mode="after")
    def _reachable(self) -> SlurmSite:
        if self.transport == "SSH" and self.ssh is None:
            raise ValueError("transport SSH needs the section ssh with host, user, keyFile and knownHostsFile")
        if self.transport == "REST" and self.rest is None:
            raise ValueError("transport REST needs the section rest with url and keyFile or tokenFile")
        return self


class Prices(Model):
    """What an hour of use costs, in whatever currency the institute counts in."""

    cpu: float = Field(default=0, ge=0, allow_inf_nan=False, description="of one cpu; expressions see it as price")
    devices: dict[ShortName, float] = Field(
        default_factory=dict, description="of one device of each class; none means what the class says"
    )

    @field_validator("devices")
    @classmethod
    def _prices(cls, prices: dict[str, float]) -> dict[str, float]:
        for name, price in prices.items():
            if not 0 <= price <= 1_000_000:
                raise ValueError(f"{name}: must be between 0 and 1000000 per hour")
        return prices


class KubernetesPriority(Model):
    """From which priority of a job on which PriorityClass is asked for."""

    priority: int = Field(ge=-1_000_000, le=1_000_000, description="jobs of at least this priority")
    name: ShortName = Field(description="a PriorityClass of the cluster")


class KubernetesSite(Model):
    """A Kubernetes cluster, and how it is used."""

    kubeconfig: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None, max_length=4096, description="file on the control plane; none means its own service account"
    )
    context: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None, max_length=253, description="none means the kubeconfig's current one"
    )
    namespace: Annotated[ShortName, ADMIN_ONLY] = Field(
        default="isthmus", description="where pods and Jobs are made; it must exist"
    )
    image: str | None = Field(default=None, max_length=512, description="for jobs that name none; needs /bin/sh")
    helper_image: str | None = Field(
        default=None, max_length=512, description="sh and tar: brings files in and out; none means image"
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secrets: Annotated[list[ShortName], ADMIN_ONLY] = Field(default_factory=list, max_length=16)
    uid: Annotated[int, ADMIN_ONLY] = Field(
        default=65534, ge=1, le=2**31 - 1, description="for tenants that have no number of their own"
    )
    runtime_class: str | None = Field(default=None, max_length=253)
    node_selector: dict[str, str] = Field(default_factory=dict, description="labels of the nodes to use")
    priority_classes: list[KubernetesPriority] = Field(default_factory=list, max_length=64)
    start_timeout: Duration = Field(default="2m", description="how long an image may fail to be pulled")
    heartbeat_interval: Duration = Field(
        default="15s",
        description="of exposed nodes; at most a third of the cluster's node-monitor-grace-period (40s by default)",
    )


class SiteRegistries(Model):
    """Where container images may come from."""

    allowed: list[Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9.:/_-]{0,254}$")]] = Field(
        default_factory=list,
        max_length=256,
        description="registries, such as ghcr.io, or parts of them, such as ghcr.io/org; none means all. "
        "Docker Hub is docker.io",
    )
    authorities: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None,
        max_length=262_144,
        description="certificates (PEM) that registries are trusted by, beside those of the system",
    )

    @field_validator("allowed")
    @classmethod
    def _no_end(cls, allowed: list[str]) -> list[str]:
        return [entry.removeprefix("https://").rstrip("/") for entry in allowed]

    @field_validator("authorities")
    @classmethod
    def _certificates(cls, text: str | None) -> str | None:
        if text is not None and "-----BEGIN CERTIFICATE-----" not in text:
            raise ValueError("must be certificates in PEM, each between BEGIN CERTIFICATE and END CERTIFICATE")
        return text


class AgentInvitation(Model):
    """Lets one machine join, once."""

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(description="hash of the secret")
    expires_at: Time


class AgentSite(Model):
    """A machine that joins by itself, over an outgoing connection."""

    key: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None,
        pattern=r"^ed25519:[A-Za-z0-9+/]{43}=$",
        description="public key of its agent, made on the machine; none: no machine has joined",
    )
    machine: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None,
        pattern=r"^[0-9a-f]{32}$",
        description="mark of the machine that joined: the key is good there only",
    )
    revoked: bool = Field(default=False, description="true: the agent is cut off")
    invitation: Annotated[AgentInvitation | None, ADMIN_ONLY] = Field(
        default=None, description="with which a machine may join; none: nobody may"
    )
    lost_after: Duration | None = Field(
        default=None, description="jobs there count as lost when it was not heard for so long; none: never"
    )
    lost_at: Time | None = Field(
        default=None, description="when an administrator gave the machine up; void once it was heard again"
    )


class SiteSpec(Model):
    """What is wanted."""

    driver: ShortName = Field(description="local, slurm, kubernetes or agent")
    enabled: bool = Field(default=True, description="false: takes no new work")
    local: LocalSite | None = None
    slurm: SlurmSite | None = None
    kubernetes: KubernetesSite | None = None
    agent: AgentSite | None = None
    devices: list[SiteDevice] = Field(default_factory=list, max_length=256)
    registries: SiteRegistries | None = Field(default=None, description="where container images may come from")
    packages: SitePackages | None = Field(default=None, description="where Python packages come from")
    prices: Prices | None = Field(default=None, description="per hour; of the sites with room the cheapest is taken")
    probe_interval: Duration = "30s"
    expose_nodes: bool = Field(
        default=False,
        description="of a Slurm site: show its nodes as Nodes of the cluster in the section kubernetes, "
        "or of the one that Isthmus runs in",
    )

    @field_validator("expose_nodes")
    @classmethod
    def _nodes_of_slurm(cls, wanted: bool, info: ValidationInfo) -> bool:
        if wanted and info.data.get("driver", "slurm") != "slurm":
            raise ValueError("exposeNodes shows the nodes of a Slurm site; remove it, or set driver to slurm")
        return wanted

    @model_validator(mode="before")
    @classmethod
    def _section(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("driver") == "local" and data.get("local") is None:
            return {**data, "local": {}}
        if isinstance(data, dict) and data.get("driver") == "kubernetes" and data.get("kubernetes") is None:
            return {**data, "kubernetes": {}}
        if isinstance(data, dict) and data.get("driver") == "agent" and data.get("agent") is None:
            return {**data, "agent": {}}
        if isinstance(data, dict) and data.get("driver") == "slurm" and data.get("slurm") is None:
            raise ValueError("driver slurm needs the section slurm, with at least a folder")
        return data


class Capacity(Model):
    """Amounts: of a site, or of what is taken."""

    cpus: float = 0
    memory_bytes: int = 0
    devices: dict[str, int] = Field(default_factory=dict)


class SiteNode(Model):
    """One machine of a site."""

    name: str
    state: str = "Ready"
    cpus: float = 0
    memory_bytes: int = 0
    devices: dict[str, int] = Field(default_factory=dict)
    features: list[str] = Field(default_factory=list)
    states: list[str] = Field(default_factory=list, description="the engine's own words, such as IDLE and DRAIN")
    queues: list[str] = Field(default_factory=list, description="that it belongs to")
    engine_resources: dict[str, int] = Field(
        default_factory=dict, alias="gres", description="what the engine itself counts, by its own names"
    )


class SiteQueue(Model):
    """One queue (Slurm: partition) of a site, with its limits."""

    name: str
    state: str = "Up"
    default: bool = False
    max_time: str | None = None
    nodes: int = 0
    pending: int = 0
    running: int = 0
    shortest_wait: str | None = Field(default=None, description="of a job of one cpu; an estimate")
    longest_wait: str | None = Field(
        default=None, description="by the engine's own plan, if all jobs use their whole time; none: not known"
    )


class ExposedIn(Model):
    """The cluster that a site's nodes are shown in, by the fields of its spec."""

    kubeconfig: str | None = None
    context: str | None = None


class ProposedClass(Model):
    """A device class that a machine could have, if an administrator accepts it."""

    name: str = Field(max_length=63)
    count: int = Field(ge=1, le=10_000, description="units that were found")
    found: str = Field(default="", max_length=256, description="what was found, in the machine's own words")


class AgentContact(Model):
    """What was last heard of a site's agent; `isthmus agents` shows what is known now."""

    version: str | None = Field(default=None, max_length=64)
    address: str | None = Field(default=None, max_length=253)
    last_contact: Time | None = Field(default=None, description="written down when it goes, and now and then")
    refused: str | None = Field(
        default=None, max_length=512, description="the last connection with its key that was refused, and why"
    )
    proposals: list[ProposedClass] = Field(
        default_factory=list, max_length=64, description="device classes of boards that the machine has"
    )


class SiteStatus(Model):
    """What was seen."""

    phase: SitePhase = SitePhase.UNKNOWN
    message: Annotated[str | None, ADMIN_ONLY] = None
    version: str | None = Field(default=None, description="of the engine")
    capacity: Capacity | None = None
    others: Capacity | None = Field(
        default=None, description="taken by work that is not ours, when it was looked at; none: not known"
    )
    nodes: list[SiteNode] = Field(default_factory=list)
    queues: list[SiteQueue] = Field(default_factory=list)
    features: dict[str, str] = Field(default_factory=dict, description="what the engine can do here, and how")
    abilities: list[str] = Field(default_factory=list, description="such as images, multi-node, queues")
    probed_at: Time | None = None
    identity: Annotated[str | None, ADMIN_ONLY] = Field(
        default=None, description="what engines know it by, when it was moved here from where it had another uid"
    )
    exposed_in: Annotated[ExposedIn | None, ADMIN_ONLY] = Field(
        default=None, description="where its nodes are shown; kept until they are removed from there"
    )
    agent: Annotated[AgentContact | None, ADMIN_ONLY] = None
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class Site(Resource):
    """A place that runs work."""

    kind: Literal["Site"] = "Site"
    spec: SiteSpec
    status: SiteStatus = Field(default_factory=SiteStatus)

    @property
    def identity(self) -> str:
        """What its driver marks its work with: its uid where it was first created."""
        return self.status.identity or self.uid

    @property
    def attributes(self) -> dict[str, str]:
        """What placement expressions see: the labels, `name` and `driver`, and as `price` that of a cpu for an hour."""
        price = {"price": f"{self.prices.cpu:g}"} if self.prices else {}
        return {**(self.metadata.labels or {}), **price, "name": self.name, "driver": self.spec.driver}

    @property
    def prices(self) -> Prices | None:
        """What an hour costs here. A label `price` is an old way to write `spec.prices.cpu`."""
        label = (self.metadata.labels or {}).get("price")
        if self.spec.prices is not None or label is None:
            return self.spec.prices
        try:
            return Prices(cpu=float(label))
        except ValueError:
            return None


SITE = Kind(
    "Site",
    "sites",
    Site,
    namespaced=False,
    short_names=("isite",),
    columns=(
        Column("Driver", ".spec.driver"),
        Column("Phase", ".status.phase"),
        Column("Cpus", ".status.capacity.cpus", "number"),
        Column("Version", ".status.version"),
        AGE,
        Column("Message", ".status.message", priority=1),
    ),
    fields=("status.phase", "spec.driver"),
    description="A place that runs work.",
    phases=SITE_PHASES,
    transitions=SITE_TRANSITIONS,
    crd_rules=SITE_RULES,
    rights=PUBLIC,
    refers=(Reference("spec.devices[].class", "DeviceClass"),),
    identity="status.identity",
    navigation=Navigation("Sites & devices", "s"),
)
