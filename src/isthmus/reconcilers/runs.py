"""From a job to the run that an engine is given."""

from __future__ import annotations

from isthmus.engines.base import Account, Run
from isthmus.resources.jobs import INDEX_LABEL, Job, SlurmOptions, Streams
from isthmus.resources.tenants import Tenant


def run_of(job: Job, tenant: Tenant | None) -> Run:
    """One try of a job, as an engine needs to know it."""
    spec, resources = job.spec, job.spec.resources
    env = {variable.name: variable.value for variable in spec.env}
    index = (job.metadata.labels or {}).get(INDEX_LABEL)
    if index is not None:
        env["ISTHMUS_ARRAY_INDEX"] = index
    env["ISTHMUS_ATTEMPT"] = str(job.status.attempt)
    return Run(
        id=job.run_id,
        namespace=job.namespace,
        job=job.name,
        command=tuple(spec.command or ()),
        script=spec.script,
        args=tuple(spec.args),
        image=spec.image,
        env=env,
        separate_streams=spec.streams is Streams.SEPARATE,
        milli_cpus=resources.milli_cpus,
        memory_bytes=resources.memory_bytes,
        time_limit=resources.seconds,
        nodes=resources.nodes,
        tasks=resources.tasks,
        devices={device.class_: device.count * resources.tasks for device in resources.devices},
        priority=spec.priority,
        account=_account(tenant),
        keeps_files=bool(spec.outputs),
        slurm=spec.slurm or SlurmOptions(),
    )


def _account(tenant: Tenant | None) -> Account:
    if tenant is None:
        return Account()
    if tenant.spec.local_account and tenant.spec.local_account.user:
        return Account(user=tenant.spec.local_account.user, uid=tenant.status.uid_number)
    return Account(uid=tenant.status.uid_number)
