"""Sections of a job for one kind of engine: each is named like the driver of the sites that read it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from isthmus.resources.frame.meta import Model

SlurmWord = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+@:-]{1,128}$")]
SlurmList = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+@:,\[\]-]+$", max_length=1024)]


_AFTER = r"(singleton|after(any|ok|notok|corr)?(:[0-9]+(_[0-9]+)?(\+[0-9]+)?)+)"
_SLURM_DEPENDENCY = rf"^{_AFTER}(,{_AFTER})*$"


class EngineOptions(Model):
    """What only one kind of engine understands. A job that has such a section runs only where that section is read.

    Everything between the manifest and the engine carries sections without looking into them.
    """

    @property
    def most_nodes(self) -> int | None:
        """The most nodes that it asks for in place of `resources.nodes`; None: it says nothing about that."""
        return None


class SlurmOptions(EngineOptions):
    """What only Slurm understands. A job that has any of it runs only at Slurm sites."""

    partition: SlurmList | None = Field(default=None, description="partition, or several: whichever starts it first")
    account: SlurmWord | None = Field(default=None, description="whom the site charges")
    qos: SlurmWord | None = None
    reservation: SlurmWord | None = None
    constraint: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+@:*&|,()\[\]-]{1,512}$")] | None = Field(
        default=None, description="features of nodes, such as akida or intel&gpu"
    )
    signal: Annotated[str, StringConstraints(pattern=r"^([BR]{1,2}:)?[A-Z0-9]{1,10}(@\d{1,5})?$")] | None = Field(
        default=None, description="sent before the time limit: USR1@60, or B:USR1@60 to the script alone"
    )
    licenses: SlurmList | None = None
    nodelist: SlurmList | None = Field(default=None, description="nodes it must have")
    exclude: SlurmList | None = Field(default=None, description="nodes it must not have")
    nodes: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}-[1-9][0-9]{0,5}$")] | None = Field(
        default=None, description="any number of nodes between two, in place of resources.nodes: 1-4"
    )
    tasks_per_node: int | None = Field(default=None, ge=1, le=65533, description="at most so many tasks on each node")
    memory_per_node: bool = Field(
        default=False,
        description="with a range of nodes: each has what the fewest would have, in place of a share by its cpus",
    )
    dependency: Annotated[str, StringConstraints(pattern=_SLURM_DEPENDENCY, max_length=1024)] | None = Field(
        default=None, description="Slurm's own words, by Slurm's numbers: afterok:123, or singleton"
    )
    job_name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+@:-]{1,64}$")] | None = Field(
        default=None, description="its name in Slurm's queue, which need not be unique; none means the job's own"
    )
    exclusive: bool = Field(default=False, description="no other job on its nodes")
    requeue: bool = Field(default=False, description="let Slurm itself start it again when a node fails")

    @property
    def most_nodes(self) -> int | None:
        """The upper end of the range of nodes."""
        return int(self.nodes.rpartition("-")[2]) if self.nodes else None
