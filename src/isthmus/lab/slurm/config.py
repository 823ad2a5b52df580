"""The configuration files of a lab, as texts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .layout import LabSettings, NodeSpec, SlurmLabPlace
from .releases import plugins


def slurm_conf(place: SlurmLabPlace, settings: LabSettings, host: str, backup: str | None = None) -> str:
    """slurm.conf; `backup` is the second controller, with its address."""
    lines: dict[str, str] = {
        "ClusterName": f"lab{place.number}",
        "SlurmctldHost": f"{host}({place.address(1)})",
        "SlurmctldPort": str(place.port(0)),
        "SlurmdPort": "6818",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        # A requeued job waits until its credential has expired: two minutes, if it is not said otherwise.
        "AuthInfo": f"socket={place.munge},cred_expire=12",
        "AuthAltTypes": "auth/jwt",
        "AuthAltParameters": f"jwt_key={place.jwt_key}",
        "StateSaveLocation": str(place.root / "state"),
        "SlurmdSpoolDir": f"{place.root}/spool/%n",
        "SlurmctldPidFile": str(place.pid_file("slurmctld")),
        "SlurmdPidFile": f"{place.root}/run/slurmd-%n.pid",
        "SlurmctldLogFile": str(place.log("slurmctld")),
        "SlurmdLogFile": f"{place.root}/log/slurmd-%n.log",
        "MailProg": "/bin/true",
        "SlurmdParameters": "config_overrides",  # nodes may claim more than this machine has
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "DefMemPerCPU": "100",
        # Answers in tenths of a second where a large site would take several: a lab is for trying things out.
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1",
        "MaxNodeCount": "250",
        "TreeWidth": "65533",
        "GresTypes": "gpu,board",
        "ReturnToService": "2",
        "SlurmctldTimeout": "30",
        "SlurmdTimeout": "20",
        "KillWait": "4",
        "MinJobAge": "300",
        "MaxJobCount": "50000",
    }
    lines |= _plugins(place, settings) | _gathering(settings) | _accounting(place, settings) | dict(settings.options)
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    # The order of the controllers is the order in which they are in charge.
    second = f"SlurmctldHost={backup}\n" if backup else ""
    return text + second + _PARTITIONS


# Partitions by feature take in nodes that join later; a list of nodes would not.
_PARTITIONS = """\
NodeSet=boards Feature=board
NodeSet=gpus Feature=gpu
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL MaxTime=30 State=UP PriorityTier=2
PartitionName=boards Nodes=boards State=UP
PartitionName=gpus Nodes=gpus State=UP
"""


def _plugins(place: SlurmLabPlace, settings: LabSettings) -> dict[str, str]:
    return {"PluginDir": str(plugins(place.programs))} if settings.release else {}


def _gathering(settings: LabSettings) -> dict[str, str]:
    kind = "cgroup" if settings.limits else "linux"
    return {
        "ProctrackType": "proctrack/cgroup" if settings.limits else "proctrack/linuxproc",
        "TaskPlugin": "task/cgroup,task/affinity" if settings.limits else "task/none",
        "JobAcctGatherType": f"jobacct_gather/{kind}",
        "JobAcctGatherFrequency": "task=1,energy=1",
        "AcctGatherEnergyType": f"acct_gather_energy/{'pm_counters' if settings.energy else 'none'}",
        "AcctGatherNodeFreq": "1",
    }


def _accounting(place: SlurmLabPlace, settings: LabSettings) -> dict[str, str]:
    if not settings.accounting:
        return {"AccountingStorageType": "accounting_storage/none"}
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(place.port(1)),
        # slurmdbd's clients do not read AuthInfo.
        "AccountingStoragePass": str(place.munge),
        "AccountingStorageTRES": "gres/gpu,gres/board",
        "AccountingStoreFlags": "job_comment",
    }


def cgroup_conf() -> str:
    """cgroup.conf."""
    return "CgroupPlugin=cgroup/v1\nConstrainCores=no\nConstrainRAMSpace=yes\n"


def slurmdbd_conf(place: SlurmLabPlace, settings: LabSettings) -> str:
    """slurmdbd.conf."""
    lines: Mapping[str, object] = {
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": place.port(1),
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={place.munge}",
        "AuthAltTypes": "auth/jwt",
        "AuthAltParameters": f"jwt_key={place.jwt_key}",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "127.0.0.1",
        "StoragePort": place.port(2),
        "StorageUser": "slurm",
        "StoragePass": "slurm",
        "StorageLoc": "slurm",
        "PidFile": place.pid_file("slurmdbd"),
        "LogFile": place.log("slurmdbd"),
        **_plugins(place, settings),
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def gres_conf(lines: Iterable[str]) -> str:
    """gres.conf: every node's lines."""
    return "".join(f"{line}\n" for line in ("AutoDetect=off", *lines))


def gres_units(spec: NodeSpec) -> list[tuple[str, str, int]]:
    """Name, type and count of each generic resource of a node."""
    found = []
    for text in spec.gres:
        name, *rest = text.split(":")
        count = int(rest.pop()) if rest and rest[-1].isdigit() else 1
        found.append((name, rest[0] if rest else "", count))
    return found
