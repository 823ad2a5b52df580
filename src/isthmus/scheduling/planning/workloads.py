"""Workloads: which runs can be compared. Image, command or script with its arguments, files, and Python packages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256

from isthmus.resources.jobs import JobSpec
from isthmus.resources.work.plans import DeviceChosen

Key = tuple[str, int]
"""A device class and how many of it, over all tasks. `cpus` stands for work on cpus alone."""
CPUS = "cpus"


def workload_of(spec: JobSpec) -> str:
    """A name that jobs have in common if and only if they do the same work."""
    files = spec.files.tree if spec.files else None
    parts: list[object] = [spec.image, spec.command, spec.script, spec.args, files]
    if spec.python is not None:
        parts.append([spec.python.requirements, spec.python.version])
    what = json.dumps(parts, separators=(",", ":"))
    return sha256(what.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def choices_of(spec: JobSpec) -> Sequence[DeviceChosen | None]:
    """What `anyOf` lets the job be given; None alone if it asks for one thing only."""
    if not spec.resources.any_of:
        return (None,)
    return [DeviceChosen(class_=c.class_, count=n) for c in spec.resources.any_of for n in c.counts]


def key_of(spec: JobSpec, chosen: DeviceChosen | None) -> Key:
    """Under which key a run on these devices is compared with others."""
    resources = spec.resources
    if chosen is not None:
        return chosen.class_, chosen.count * resources.tasks
    if not resources.devices:
        return CPUS, max(1, -(-resources.milli_cpus // 1000))
    if len(resources.devices) == 1:
        return resources.devices[0].class_, resources.units(resources.devices[0])
    named = sorted((device.class_, device.count) for device in resources.devices)
    return "+".join(f"{count}x{name}" for name, count in named), resources.tasks


def manifest_profile(spec: JobSpec) -> dict[Key, float]:
    """The run times that the manifest states, in seconds."""
    tasks = spec.resources.tasks
    return {
        (entry.class_, entry.count * tasks) if entry.class_ else key_of(spec, None): entry.seconds
        for entry in spec.profile or ()
    }
