"""`--gpus N`: whichever class of GPU there is, so that nobody has to know what this institute calls it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.client.sync import Client
from isthmus.errors import Invalid, NotFound

Object = Mapping[str, Any]


def is_gpu(device: Object) -> bool:
    """Whether a DeviceClass is one of GPUs: by what Slurm or Kubernetes calls it, or by its name. Pure."""
    spec = device.get("spec") or {}
    gres = str((spec.get("slurm") or {}).get("gres") or "")
    resource = str((spec.get("kubernetes") or {}).get("resource") or "")
    name = str(device["metadata"]["name"])
    return gres.split(":")[0] == "gpu" or resource.endswith("/gpu") or "gpu" in name.split("-")


def gpu_classes(devices: Iterable[Object]) -> list[str]:
    """The names of all classes of GPUs. Pure."""
    return sorted(str(device["metadata"]["name"]) for device in devices if is_gpu(device))


def gpus_as_device(client: Client, count: int) -> str:
    """`CLASS:N` for so many GPUs; raises when there is no GPU, or the choice is not clear."""
    found = gpu_classes(client.list("deviceclasses"))
    if not found:
        raise NotFound("there is no device class of GPUs; `isthmus devices` lists what there is")
    if len(found) > 1:
        several = " or ".join(f"--device {name}:{count}" for name in found)
        raise Invalid(f"there are several classes of GPUs; say which: {several}")
    return f"{found[0]}:{count}"
