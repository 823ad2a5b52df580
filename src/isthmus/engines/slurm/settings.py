"""Settings of the Slurm engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from isthmus.engines.base import Run
from isthmus.engines.slurm.batch.submissions import USER
from isthmus.errors import EngineRefused
from isthmus.images.runtimes import RUNTIMES

Transport = Literal["Auto", "Command", "SSH", "REST"]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class SshSettings:
    """The login node."""

    host: str
    user: str
    """The account that asks for the state of all jobs."""
    key_file: str
    """Private key; `{user}` stands for the account."""
    known_hosts: Path
    """Keys of the host. There is no way to leave them unchecked."""
    port: int = 22
    certificate_file: str | None = None
    """Certificate of the key; `{user}` stands for the account. Default none."""
    sessions: int = 8
    """Sessions at once over one connection; others queue. sshd refuses more than 10 by default."""
    connect_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class RestSettings:
    """slurmrestd."""

    url: str
    """`http://host:port`, `https://…` or `unix:/path`."""
    user: str = "root"
    """The account that asks for the state of all jobs."""
    key_file: Path | None = None
    """The key that the site signs tokens with: a token is made for each person, and lives for minutes."""
    token_file: str | None = None
    """A ready token; `{user}` stands for the account."""
    connections: int = 8
    """At once: with more, Slurm does not take jobs any faster. slurmrestd holds about 124 and then answers nobody."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """Who runs under which account."""

    tenant: str
    """Its name; `*` for all."""
    user: str
    """The account; `{member}` for what the star of `member` stands for, `{tenant}` for the tenant's name."""
    member: str = "*"
    """A name, in which one `*` stands for any text."""

    @property
    def rank(self) -> tuple[bool, bool]:
        """Those that name somebody come first."""
        return self.tenant == "*", "*" in self.member

    def account(self, tenant: str, member: str) -> str | None:
        """The account, if this is about them. Of whom nothing is known, only one that does not depend on it."""
        if self.tenant not in ("*", tenant):
            return None
        before, star, after = self.member.partition("*")
        part = member[len(before) : len(member) - len(after)] if star else member
        if (before + part + after if star else before) != member or ("{member}" in self.user and not part):
            return None
        return self.user.replace("{tenant}", tenant).replace("{member}", part)


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How a Slurm cluster is reached and used."""

    folder: str
    """On a file system that all nodes see: records, runs and their logs."""
    owner: str = "site"
    """Whose the folder is, the uid of the site: of those who open it for one owner, only the last can begin runs."""
    accounts: tuple[Mapped, ...] = ()
    """Who runs under which account. Default none: nobody may."""
    transport: Transport = "Command"
    conf: str | None = None
    """slurm.conf. Default none: the system's own."""
    path: str | None = None
    """Folders of Slurm's commands. Default none: the system's."""
    ssh: SshSettings | None = None
    rest: RestSettings | None = None
    account: str = ""
    """Whom the site charges when a job does not say. Default none: Slurm's own default."""
    partitions: tuple[str, ...] = ()
    """The only partitions to use, best first. Default none: any."""
    poll_seconds: float = 1.0
    """Between looks at all jobs while any of ours is there. Without any, nothing is asked."""
    calls_per_second: float = 200.0
    """The most that Slurm is asked in the long run."""
    burst: float = 1000.0
    """The most that Slurm is asked at once: a burst of jobs should not have to wait."""
    command_seconds: float = 60.0
    """After this long a question counts as not answered: nothing is concluded."""
    log_seconds: float = 0.2
    """Between looks at the logs that somebody follows."""
    max_output_bytes: int = 50 * 2**30
    """What one run may bring back. Default 50 GiB: more is a job for the site's own file system."""

    image_runtimes: tuple[str, ...] = tuple(RUNTIMES)
    """What may run images, best first. Default all that are known; none: no images are run."""
    package_index: str = ""
    """Where environments of Python packages get them from. Default: where the installer looks by itself."""
    wheels: str = ""
    """A folder of wheels that the nodes see, for the same; without an index nothing else is asked. Default none."""
    max_image_bytes: int = 50 * 2**30
    """Of all images that one person has unpacked at the site. Default 50 GiB; those not used for longest go."""
    layers: Path | None = None
    """Where the control plane keeps what it fetches of registries. Default none: as long as it runs."""
    registry_authorities: str = ""
    """Certificates (PEM) that registries are trusted by, beside those of the system. Default none."""

    @property
    def search_path(self) -> str:
        """PATH for commands and jobs."""
        return f"{self.path}:{SYSTEM_PATH}" if self.path else SYSTEM_PATH

    @property
    def job_environment(self) -> dict[str, str]:
        """What Slurm passes on to jobs."""
        return {"PATH": self.search_path} | ({"SLURM_CONF": self.conf} if self.conf else {})

    @property
    def only_account(self) -> str | None:
        """The account that everybody has; None if there are several."""
        users = {entry.user for entry in self.accounts}
        return next(iter(users)) if len(users) == 1 and "{" not in "".join(users) else None

    def user_of(self, run: Run) -> str:
        """The account of whoever submitted a run; raises EngineRefused with the remedy."""
        tenant, member = run.namespace, run.member
        found = (entry.account(tenant, member) for entry in sorted(self.accounts, key=lambda entry: entry.rank))
        user = next((account for account in found if account is not None), None)
        if user is None:
            raise EngineRefused(self._nobody(tenant, member))
        if user == "root" or not USER.fullmatch(user):
            raise EngineRefused(
                f"{user!r} is no account for jobs: they never run as root, and names follow a pattern. "
                "An administrator names another one in slurm.accounts of the site."
            )
        return user

    def _nobody(self, tenant: str, member: str) -> str:
        remedy = "An administrator adds one to slurm.accounts of the site."
        if not any(entry.tenant in ("*", tenant) for entry in self.accounts):
            return f"Tenant {tenant} has no account on this cluster. {remedy}"
        if member:
            return f"{member} of tenant {tenant} has no account on this cluster. {remedy}"
        return (
            f"On this cluster jobs run as persons, and it is not known which member of tenant {tenant} this one is of. "
            "Submit it as a member, with a personal token (an administrator makes it: "
            "isthmus token create NAME --role none -n isthmus-system)."
        )
