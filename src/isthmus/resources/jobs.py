"""Job: work that runs to completion, once per attempt, anywhere.

The spec says what is wanted and never which engine does it. The status says what was seen. After a job is accepted
only a few fields may change: the rest has been promised to an engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, StringConstraints, field_validator, model_validator

from isthmus._kit.durations import parse_duration
from isthmus._kit.quantities import parse_bytes, parse_cpus
from isthmus.errors import invalid_field

from .frame.declarations import AGE, Column, Kind, Navigation, Reference, Rights, at_any_time, while_in
from .frame.fields import Below, Cpus, Duration, LogPattern, Memory, check_path, check_pattern
from .frame.meta import MAX_NAME, Condition, LabelKey, LabelValue, Model, Name, Resource, ShortName, Time
from .frame.roles import READ, WRITE
from .frame.states import JOB_PHASES, JOB_TRANSITIONS, TERMINAL, JobPhase
from .schemas.crd_rules import job_rules
from .work.arrays import expand_indices
from .work.engine_options import EngineOptions
from .work.engine_options import SlurmOptions as SlurmOptions
from .work.expressions import parse_expression
from .work.plans import DeviceChoice, DeviceChosen, PlanStatus, Preemption, ProfileEntry, Restartable, Saving
from .work.python_environments import PythonEnvironment
from .work.tries import Try as Try
from .work.tries import Usage as Usage

DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"
Digest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN)]
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_WORDS = 10_000
"""Of a command line."""

# Labels and a finalizer that the platform itself puts on jobs.
ARRAY_LABEL = "isthmus.dev/array"
INDEX_LABEL = "isthmus.dev/array-index"
RUN_FINALIZER = "isthmus.dev/run"
IMAGE_RESOLVED = "ImageResolved"
"""The condition of a job whose image the control plane could not look up: its site does."""


class Intent(StrEnum):
    """What the owner wants of the job now."""

    RUN = "Run"
    HOLD = "Hold"
    CANCEL = "Cancel"


class DependencyCondition(StrEnum):
    """What must be true of the other job before this one starts."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    FINISHED = "Finished"
    STARTED = "Started"


class Streams(StrEnum):
    """Whether standard error goes into the log in its true order, or into a stream of its own."""

    MERGED = "Merged"
    SEPARATE = "Separate"


class EnvVar(Model):
    """One environment variable."""

    name: str = Field(max_length=256)
    value: str = Field(default="", max_length=131_072)

    @field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
        if not _ENV_NAME.fullmatch(name):
            raise ValueError("must consist of letters, digits and _ and not begin with a digit")
        if name.startswith("ISTHMUS_"):
            raise ValueError("names that begin with ISTHMUS_ are set by the platform; choose another")
        return name

    @field_validator("value")
    @classmethod
    def _no_nul(cls, value: str) -> str:
        if "\0" in value:
            raise ValueError("must not contain a NUL character")
        return value


class DeviceRequest(Model):
    """So many units of one class of device."""

    class_: ShortName = Field(alias="class", description="name of a DeviceClass")
    count: int = Field(default=1, ge=1, le=10_000)
    per_node: bool | None = Field(default=None, description="so many on each node, which its tasks share")


class Resources(Model):
    """What each task needs (cpus, memory, devices unless perNode), and how many tasks on how many nodes."""

    cpus: Cpus = "1"
    memory: Memory | None = Field(default=None, description="limit and reservation; none means the site's default")
    devices: list[DeviceRequest] = Field(default_factory=list, max_length=16)
    any_of: list[DeviceChoice] | None = Field(
        default=None, max_length=16, description="one of these besides; the deadline and the prices decide which"
    )
    nodes: int = Field(default=1, ge=1, le=100_000)
    tasks: int = Field(default=1, ge=1, le=1_000_000)
    time_limit: Duration | None = Field(default=None, description="the job is ended after this long")

    @field_validator("time_limit")
    @classmethod
    def _some_time(cls, limit: str | None) -> str | None:
        if limit is not None and parse_duration(limit) <= 0:
            raise ValueError("must be more than 0; leave it out for no limit of the job's own")
        return limit

    @field_validator("devices")
    @classmethod
    def _once(cls, devices: list[DeviceRequest]) -> list[DeviceRequest]:
        names = [d.class_ for d in devices]
        if len(set(names)) != len(names):
            raise ValueError("names a class twice; add the counts up")
        return devices

    @field_validator("any_of")
    @classmethod
    def _distinct(cls, choices: list[DeviceChoice] | None) -> list[DeviceChoice] | None:
        names = [choice.class_ for choice in choices or ()]
        if len(set(names)) != len(names):
            raise ValueError("names a class twice; put its counts into one list")
        return choices or None

    @model_validator(mode="after")
    def _apart(self) -> Resources:
        both = {device.class_ for device in self.devices} & {choice.class_ for choice in self.any_of or ()}
        if both:
            raise ValueError(f"names {', '.join(sorted(both))} in devices and in anyOf; choose one of them")
        return self

    @property
    def milli_cpus(self) -> int:
        """Thousandths of a cpu over all tasks."""
        return parse_cpus(self.cpus) * self.tasks

    @property
    def memory_bytes(self) -> int:
        """Bytes over all tasks; 0 when none is asked for."""
        return parse_bytes(self.memory) * self.tasks if self.memory else 0

    def units(self, device: DeviceRequest) -> int:
        """Units of one class over all tasks."""
        return device.count * (self.nodes if device.per_node else self.tasks)

    @property
    def seconds(self) -> float | None:
        """The time limit in seconds."""
        return parse_duration(self.time_limit) if self.time_limit else None


class Files(Model):
    """The folder sent along: a tree of content-addressed files, uploaded before the job is created."""

    tree: Digest = Field(description="digest of the tree document, see the files API")
    bytes: int = Field(default=0, ge=0)
    count: int = Field(default=0, ge=0)


class Array(Model):
    """The job many times over, each with its own index in ISTHMUS_ARRAY_INDEX."""

    indices: str = Field(description="0-99, 1,3,5 or 0-100:10", max_length=4096)
    limit: int | None = Field(default=None, ge=1, description="how many may be active at once")

    @field_validator("indices")
    @classmethod
    def _indices(cls, text: str) -> str:
        expand_indices(text)
        return text


class Dependency(Model):
    """Another job of the same tenant, and what must be true of it."""

    job: Name
    condition: DependencyCondition = DependencyCondition.SUCCEEDED
    outputs_into: Below | None = Field(
        default=None, description="take its outputs along, into this folder of the job; . is the job's own folder"
    )

    @model_validator(mode="after")
    def _when_there_are_any(self) -> Dependency:
        if self.outputs_into is not None and self.condition is DependencyCondition.STARTED:
            raise ValueError("outputs are there when the other job has ended: choose Succeeded, Failed or Finished")
        return self


class Retries(Model):
    """How often a failed attempt is repeated, and how long to wait before each."""

    limit: int = Field(default=0, ge=0, le=1000)
    backoff: Duration = Field(default="10s", description="before the first repetition; doubles each time")
    max_backoff: Duration = "10m"
    exit_codes: list[int] | None = Field(
        default=None, description="repeat only after these; none means after any failure", max_length=256
    )


class Placement(Model):
    """Where the job may run. Everything named must hold."""

    sites: list[Name] = Field(default_factory=list, max_length=256, description="any of these; none means any")
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, max_length=256, description="labels the site must carry"
    )
    expression: str | None = Field(
        default=None, max_length=4096, description="over the site's labels: location == IT and price < 2"
    )

    @field_validator("expression")
    @classmethod
    def _parses(cls, text: str | None) -> str | None:
        if text is not None:
            parse_expression(text)
        return text


class LogFiles(Model):
    """The output as files in the working folder and among the outputs, named as by `sbatch --output` and `--error`."""

    stdout: LogPattern | None = Field(default=None, description="such as logs/%x-%j.out")
    stderr: LogPattern | None = Field(default=None, description="standard error, where the streams are separate")
    append: bool = Field(default=False, description="keep what such a file, sent along, holds before the output")


class JobSpec(Model):
    """What is wanted."""

    command: list[str] | None = Field(
        default=None, max_length=MAX_WORDS, description="program and arguments, run without a shell"
    )
    script: str | None = Field(
        default=None,
        max_length=1_048_576,
        description="a whole script; its first line may name the interpreter",
    )
    args: list[str] = Field(default_factory=list, max_length=MAX_WORDS, description="arguments of the script")
    image: str | None = Field(
        default=None,
        max_length=512,
        description="container image: of a registry, or a file sent along (oci-archive:FILE)",
    )
    python: PythonEnvironment | None = None
    files: Files | None = None
    outputs: list[Annotated[str, StringConstraints(max_length=4096)]] = Field(
        default_factory=list, max_length=256, description="patterns of files to keep: out/*.csv"
    )
    stdin: str | None = Field(
        default=None,
        max_length=4096,
        description="file of the job's folder that it reads on standard input; none means that there is nothing",
    )
    log_files: LogFiles | None = Field(default=None, description="keep the output as files too")
    env: list[EnvVar] = Field(default_factory=list, max_length=1024)
    streams: Streams = Streams.MERGED
    working_dir: Below | None = Field(default=None, description="folder below the job's own in which it starts")
    resources: Resources = Field(default_factory=Resources)
    array: Array | None = None
    dependencies: list[Dependency] = Field(default_factory=list, max_length=1024)
    retries: Retries = Field(default_factory=Retries)
    deadline: Time | None = Field(default=None, description="when the result is wanted")
    late_cost_per_hour: float | None = Field(
        default=None, ge=0, le=1_000_000, description="what an hour after the deadline costs; none means 36"
    )
    saving: Saving | None = Field(default=None, description="what to save beside being in time; none means Cost")
    profile: list[ProfileEntry] | None = Field(
        default=None, max_length=256, description="expected run times; past runs of the same work are believed more"
    )
    restartable: Restartable | None = Field(
        default=None, description="may be stopped for others and go on later; {} is enough to say so"
    )
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000, description="higher goes first")
    placement: Placement = Field(default_factory=Placement)
    slurm: SlurmOptions | None = None
    intent: Intent = Intent.RUN
    ttl_after_finished: Duration | None = Field(default=None, description="delete the job this long after its end")

    @property
    def engine_options(self) -> dict[str, EngineOptions]:
        """The sections for one kind of engine, by the name of its driver."""
        sections = ((name, getattr(self, name)) for name in _SECTIONS)
        return {name: section for name, section in sections if section is not None}

    @model_validator(mode="after")
    def _what_to_run(self) -> JobSpec:
        if (self.command is None) == (self.script is None):
            raise ValueError("give exactly one of command (a list of words) and script (a text)")
        if self.command is not None and self.args:
            raise ValueError("args belong to a script; append them to command")
        return self

    @model_validator(mode="after")
    def _what_is_promised(self) -> JobSpec:
        if self.resources.any_of and self.deadline is None:
            raise ValueError("resources.anyOf needs a deadline: without one there is nothing to choose by")
        check_profile(self.profile or (), self.resources)
        return self

    @field_validator("command")
    @classmethod
    def _runnable(cls, command: list[str] | None) -> list[str] | None:
        if command is not None:
            if not command or not command[0]:
                raise ValueError("must name a program")
            _check_words(command)
        return command

    @field_validator("script")
    @classmethod
    def _not_empty(cls, script: str | None) -> str | None:
        if script is not None:
            if not script.strip():
                raise ValueError("is empty")
            _check_words([script], limit=1_048_576)
        return script

    @field_validator("args")
    @classmethod
    def _args(cls, args: list[str]) -> list[str]:
        _check_words(args)
        return args

    @field_validator("stdin")
    @classmethod
    def _a_file(cls, path: str | None) -> str | None:
        return None if path is None else check_path(path)

    @field_validator("outputs")
    @classmethod
    def _inside(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            check_pattern(pattern, "out/*.csv")
        return patterns

    @field_validator("dependencies")
    @classmethod
    def _distinct(cls, dependencies: list[Dependency]) -> list[Dependency]:
        names = [d.job for d in dependencies]
        if len(set(names)) != len(names):
            raise ValueError("names a job twice")
        return dependencies


def check_profile(profile: Sequence[ProfileEntry], resources: Resources) -> None:
    """Refuse a profile that contradicts itself or what the job asks for."""
    choices = [choice.class_ for choice in resources.any_of or ()]
    may = choices or [device.class_ for device in resources.devices]
    seen: dict[tuple[str | None, int], str] = {}
    for entry in profile:
        key = (entry.class_, entry.count)
        title = f"{entry.count} {entry.class_}" if entry.class_ else "what it asks for"
        if seen.setdefault(key, entry.duration) != entry.duration:
            raise ValueError(f"profile contradicts itself: {seen[key]} and {entry.duration} for {title}")
        if entry.class_ is not None and entry.class_ not in may:
            known = ", ".join(may) or "no device"
            raise ValueError(f"profile names {entry.class_}, but the job may use {known}; add it to resources.anyOf")
        if entry.class_ is None and choices:
            named = ", ".join(dict.fromkeys(choices))
            raise ValueError(
                f"profile has an entry without class, but resources.anyOf names classes ({named}); name one,"
                f" such as class: {choices[0]} (--expect {choices[0]}={entry.duration})"
            )


_SECTIONS = tuple(
    name
    for name, field in JobSpec.model_fields.items()
    if any(isinstance(part, type) and issubclass(part, EngineOptions) for part in get_args(field.annotation))
)


class Outputs(Model):
    """What the run left: a tree of content-addressed files."""

    tree: Digest
    bytes: int
    count: int
    skipped: list[str] | None = Field(default=None, description="matched, but not kept, and why")


class ResolvedDependency(Model):
    """A dependency once its job was seen: kept by uid, so that a later job of the same name does not count."""

    job: str
    uid: str
    satisfied: bool = False
    tree: Digest | None = Field(default=None, description="what it left, where this job takes its outputs")


class ArrayStatus(Model):
    """How many elements are in which state."""

    total: int = 0
    created: int = 0
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class StartRange(Model):
    """When a job may start: an estimate. Work ahead of it that ends early brings it forward; work that matters more and
    comes later puts it off."""

    earliest: Time
    latest: Time


class JobStatus(Model):
    """What was seen."""

    phase: JobPhase = JobPhase.PENDING
    reason: str | None = Field(default=None, description="one word a program may test for")
    message: str | None = Field(default=None, description="why, in a sentence")
    attempt: int = Field(default=0, description="counts the attempts, from 0")
    member: str | None = Field(
        default=None, description="the member of the tenant who created it, where a personal token says"
    )
    submitted_by: str | None = Field(
        default=None, description="the user of the token that created it, for lists; accounts follow member alone"
    )
    site: str | None = None
    site_message: str | None = Field(default=None, description="why this site and no other, where there was a choice")
    engine_id: str | None = Field(default=None, description="what the engine itself calls it")
    image: str | None = Field(
        default=None, description="digest of the image that it runs in; a later attempt runs the same bytes"
    )
    devices: dict[str, list[str]] | None = Field(default=None, description="which units of each class it was given")
    chosen: DeviceChosen | None = Field(default=None, description="which of resources.anyOf it was given")
    price_per_hour: float | None = Field(
        default=None, description="of what it was given, by the prices when it was placed; none where there are none"
    )
    plan: PlanStatus | None = Field(default=None, description="why it is where it is, and the alternatives")
    preemption: Preemption | None = Field(default=None, description="it is being stopped for another job")
    progress: float | None = Field(default=None, description="share of the work that earlier attempts did and kept")
    checkpoint: Outputs | None = Field(default=None, description="the state that an earlier attempt kept")
    estimated_start: StartRange | None = Field(
        default=None, description="while it waits in the engine's queue, where the engine has a plan"
    )
    submitted_at: Time | None = None
    placed_at: Time | None = None
    started_at: Time | None = None
    finished_at: Time | None = None
    retry_at: Time | None = Field(default=None, description="not tried again before this")
    exit_code: int | None = None
    signal: str | None = Field(default=None, description="name of the signal that ended it, such as SIGKILL")
    usage: Usage | None = None
    outputs: Outputs | None = None
    reported: dict[str, float] | None = Field(
        default=None, description='the last value of each name in lines such as isthmus: {"accuracy": 0.91}'
    )
    tries: list[Try] | None = Field(default=None, description="the attempts before this one")
    array: ArrayStatus | None = None
    dependencies: list[ResolvedDependency] | None = None
    identity: str | None = Field(
        default=None, description="what engines know it by, when it was moved here from where it had another uid"
    )
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class Job(Resource):
    """Work that runs to completion."""

    kind: Literal["Job"] = "Job"
    spec: JobSpec
    status: JobStatus = Field(default_factory=JobStatus)

    @property
    def run_id(self) -> str:
        """What identifies this attempt for all time: the engine is asked for it before anything is sent."""
        return self.run(self.status.attempt)

    @property
    def identity(self) -> str:
        """What engines know the job by: its uid where it was first created."""
        return self.status.identity or self.uid

    def run(self, attempt: int) -> str:
        """What identifies any of its attempts."""
        return _run_id(self.identity, attempt)


def run_id_of(obj: Mapping[str, Any], attempt: int | None = None) -> str:
    """The same of an attempt, or the present one, of a job in its plain form."""
    status = obj.get("status") or {}
    number = status.get("attempt", 0) if attempt is None else attempt
    return _run_id(status.get("identity") or obj["metadata"].get("uid", ""), number)


def _run_id(identity: str, attempt: int) -> str:
    return f"{identity}.{attempt}"


def uid_of_run(run_id: str) -> str:
    """The identity of the job that a run belongs to."""
    return run_id.rpartition(".")[0]


def _check_words(words: list[str], limit: int = 131_072) -> None:
    if sum(len(word) for word in words) > 2_097_152:
        raise ValueError("is longer than a command line may be; put it into a file and send the file along")
    for word in words:
        if "\0" in word:
            raise ValueError("must not contain a NUL character")
        if len(word) > limit:
            raise ValueError(f"has a word longer than {limit} characters; put it into a file and send the file along")


def _not_on_itself(job: Mapping[str, Any]) -> None:
    for at, dependency in enumerate(job["spec"].get("dependencies") or ()):
        if dependency["job"] == job["metadata"]["name"]:
            where = f"spec.dependencies[{at}].job"
            raise invalid_field(where, "names the job itself, which would wait for ever; remove it")


def _room_for_elements(job: Mapping[str, Any]) -> None:
    """The elements of an array are called after it, and their names have a limit too."""
    array = job["spec"].get("array")
    longest = max(map(len, re.findall(r"\d+", array["indices"])), default=0) + 1 if array else 0
    if len(job["metadata"]["name"]) + longest > MAX_NAME:
        text = f"leaves no room for the {longest} characters of its elements' names; shorten it"
        raise invalid_field("metadata.name", text)


JOB = Kind(
    "Job",
    "jobs",
    Job,
    namespaced=True,
    short_names=("ijob", "ijobs"),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Site", ".status.site"),
        Column("Exit", ".status.exitCode", "integer"),
        Column("Reason", ".status.reason"),
        AGE,
        Column("Started", ".status.startedAt", "date", priority=1),
        Column("Finished", ".status.finishedAt", "date", priority=1),
        Column("Attempt", ".status.attempt", "integer", priority=1),
        Column("Message", ".status.message", priority=1),
    ),
    fields=("status.phase", "status.site", "spec.priority", "spec.intent"),
    description="Work that runs to completion.",
    phases=JOB_PHASES,
    transitions=JOB_TRANSITIONS,
    changes=at_any_time("intent", "ttlAfterFinished")
    | while_in(set(JobPhase) - TERMINAL, "priority", "deadline", "lateCostPerHour", "retries"),
    admit=(_not_on_itself, _room_for_elements),
    crd_rules=job_rules("spec"),
    rights=Rights(viewer=READ, member=WRITE, readable=("*",)),
    work=True,
    refers=(
        Reference("spec.dependencies[].job", "Job"),
        Reference("status.dependencies[].uid", "Job", by_uid=True),
        Reference("spec.placement.sites[]", "Site"),
        Reference("status.site", "Site"),
        Reference("spec.resources.devices[].class", "DeviceClass"),
        Reference("spec.resources.anyOf[].class", "DeviceClass"),
    ),
    trees=("spec.files.tree", "status.outputs.tree", "status.checkpoint.tree", "status.dependencies[].tree"),
    owns=("Job",),
    identity="status.identity",
    navigation=Navigation("Jobs", "j"),
)
