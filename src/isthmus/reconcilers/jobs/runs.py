"""From a job to the run that an engine is given."""

from __future__ import annotations

from functools import lru_cache

from isthmus.engines.base import Account, After, ArrayPart, Run, Stream
from isthmus.engines.batch_scripts import number_of
from isthmus.engines.environment_words import PythonSetup
from isthmus.errors import Invalid
from isthmus.images.logins import RegistryLogin
from isthmus.images.manifests import is_digest
from isthmus.images.references import RegistryReference, parse_reference
from isthmus.resources.jobs import INDEX_LABEL, Array, Job, JobSpec, Streams
from isthmus.resources.tenants import Tenant
from isthmus.resources.work.arrays import expand_indices

expanded = lru_cache(maxsize=8)(expand_indices)


def run_of(
    job: Job,
    tenant: Tenant | None,
    *,
    after: tuple[After, ...] = (),
    array: Array | None = None,
    login: RegistryLogin | None = None,
    placed_here: bool = False,
) -> Run:
    """One try of a job, as an engine needs to know it; `array` is that of the array it is an element of."""
    spec, resources = job.spec, job.spec.resources
    env = {variable.name: variable.value for variable in spec.env}
    index = (job.metadata.labels or {}).get(INDEX_LABEL)
    if index is not None:
        env["ISTHMUS_ARRAY_INDEX"] = index
    env["ISTHMUS_ATTEMPT"] = str(job.status.attempt)
    devices = {device.class_: resources.units(device) for device in resources.devices}
    if chosen := job.status.chosen:
        devices[chosen.class_] = chosen.count * resources.tasks
        env |= {"ISTHMUS_DEVICE": chosen.class_, "ISTHMUS_DEVICE_COUNT": str(chosen.count)}
    return Run(
        id=job.run_id,
        namespace=job.namespace,
        job=job.name,
        member=job.status.member or "",
        command=tuple(spec.command or ()),
        script=spec.script,
        args=tuple(spec.args),
        image=_image(job),
        login=login,
        python=PythonSetup(tuple(spec.python.requirements), spec.python.version) if spec.python else None,
        env=env,
        stdin=spec.stdin,
        separate_streams=spec.streams is Streams.SEPARATE,
        working_dir=spec.working_dir or "",
        log_files=log_files_of(spec),
        append_logs=spec.log_files is not None and spec.log_files.append,
        milli_cpus=resources.milli_cpus,
        memory_bytes=resources.memory_bytes,
        memory_share=_memory_share(resources.milli_cpus, tenant),
        log_bytes=tenant.spec.quota.log_bytes if tenant else 0,
        disk_bytes=(tenant.spec.quota.storage_bytes or 0) if tenant else 0,
        time_limit=resources.seconds,
        nodes=resources.nodes,
        tasks=resources.tasks,
        devices=devices,
        priority=spec.priority,
        account=_account(tenant),
        keeps_files=bool(spec.outputs),
        options=tuple(spec.engine_options.values()),
        after=after,
        array=_part(job, int(index), array) if index is not None and array is not None else None,
        placed_here=placed_here,
    )


def _image(job: Job) -> str | None:
    """The image; by its digest once that is known, since a tag may mean something else by now."""
    name, digest = job.spec.image, job.status.image
    if name is None or digest is None or not is_digest(digest):
        return name
    try:
        wanted = parse_reference(name)
    except Invalid:
        return name
    return str(wanted.at(digest)) if isinstance(wanted, RegistryReference) else name


def _part(job: Job, index: int, array: Array) -> ArrayPart:
    indices = expanded(array.indices)
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    return ArrayPart(array_number(job), index, len(indices), indices[0], indices[-1], step)


def array_number(job: Job) -> int:
    """The number of the array that a job is an element of."""
    return number_of(next((owner.uid for owner in job.metadata.owner_references or ()), job.uid))


def log_files_of(spec: JobSpec) -> dict[Stream, str]:
    """Only of streams that there are: with both in one, there is one."""
    wanted = spec.log_files
    found = {Stream.STDOUT: wanted.stdout, Stream.STDERR: wanted.stderr} if wanted else {}
    separate = spec.streams is Streams.SEPARATE
    return {stream: name for stream, name in found.items() if name and (separate or stream is Stream.STDOUT)}


def _memory_share(milli_cpus: int, tenant: Tenant | None) -> int:
    """What a job counts with, in the tenant's quota, that asks for no memory."""
    return tenant.spec.quota.default_memory(milli_cpus) if tenant else 0


def _account(tenant: Tenant | None) -> Account:
    if tenant is None:
        return Account()
    if tenant.spec.local_account and tenant.spec.local_account.user:
        return Account(user=tenant.spec.local_account.user, uid=tenant.status.uid_number)
    return Account(uid=tenant.status.uid_number)
