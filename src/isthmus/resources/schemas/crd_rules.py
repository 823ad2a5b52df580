"""What the models' own code checks, said to API servers of Kubernetes. Data, and nothing else.

A rule has a form that every server since 1.20 reads, or one in CEL that says the model's own sentence (servers since
1.25), or both; a server that reads CEL is given that one alone, so that it says one sentence and no other. Servers
reckon what a rule may cost with the longest text and list that the schema allows: where there is no bound, or a high
one (files of devices, the names of 1,024 dependencies), the first form must do, or the operator.

Where a model puts a value before its sentence (`'x' must be …`), the rule says the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """One check of a model's own code, said to an API server."""

    path: str
    """Where: names joined by dots, `[]` for the items of a list, `{}` for the values of a map."""
    schema: Schema = field(default_factory=dict)
    """For servers that do not read CEL, or for every server if there is no CEL."""
    cel: str = ""
    """For servers since 1.25."""
    message: str = ""
    """The sentence of the model."""


_ONCE = "self.all(one, self.exists_one(other, {}))"
_DOTS = r"(^|/)\.\.(/|$)"
_CEL_DOTS = r"'(^|/)\\.\\.(/|$)'"
_BELOW_DEV: Schema = {"pattern": "^/dev/", "not": {"pattern": _DOTS}}
_NOT_ROOT: Schema = {"not": {"enum": ["root", "0"]}}
_CEL_NOT_ROOT = "!(self in ['root', '0'])"


def job_rules(spec: str) -> tuple[SchemaRule, ...]:
    """What is checked of a job's spec, wherever one stands."""
    return (
        SchemaRule(
            spec,
            {"oneOf": [{"required": ["command"]}, {"required": ["script"]}]},
            "has(self.command) != has(self.script)",
            "give exactly one of command (a list of words) and script (a text)",
        ),
        SchemaRule(
            spec,
            cel="!has(self.command) || !has(self.args) || size(self.args) == 0",
            message="args belong to a script; append them to command",
        ),
        SchemaRule(
            spec,
            cel="!has(self.resources) || !has(self.resources.anyOf) || size(self.resources.anyOf) == 0"
            " || has(self.deadline)",
            message="resources.anyOf needs a deadline: without one there is nothing to choose by",
        ),
        SchemaRule(
            f"{spec}.command",
            {"minItems": 1},
            "size(self) > 0 && self[0] != ''",
            "must name a program",
        ),
        *(SchemaRule(f"{spec}.{words}", {"maxItems": 10_000}) for words in ("command", "args")),
        SchemaRule(f"{spec}.script", {"pattern": r"\S"}, r"self.matches('\\S')", "is empty"),
        SchemaRule(
            f"{spec}.outputs[]",
            {"minLength": 1, "not": {"pattern": rf"^/|{_DOTS}"}},
            f"self != '' && !self.startsWith('/') && !self.matches({_CEL_DOTS})",
            "must be a pattern below the job's own folder, such as out/*.csv",
        ),
        *(
            SchemaRule(
                f"{spec}.logFiles.{stream}",
                {"not": {"pattern": _DOTS}},
                f"!self.matches({_CEL_DOTS})",
                "must be a file below the job's own folder, such as logs/%j.out",
            )
            for stream in ("stdout", "stderr")
        ),
        SchemaRule(
            f"{spec}.env[].name",
            {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
            "self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",
            "must consist of letters, digits and _ and not begin with a digit",
        ),
        SchemaRule(
            f"{spec}.env[].name",
            {"not": {"pattern": "^ISTHMUS_"}},
            "!self.startsWith('ISTHMUS_')",
            "names that begin with ISTHMUS_ are set by the platform; choose another",
        ),
        SchemaRule(
            f"{spec}.array.indices",
            {"pattern": r"^ *[0-9]+(-[0-9]+(:[0-9]+)?)?( *, *[0-9]+(-[0-9]+(:[0-9]+)?)?)* *$"},
            "self.matches('^ *[0-9]+(-[0-9]+(:[0-9]+)?)?( *, *[0-9]+(-[0-9]+(:[0-9]+)?)?)* *$')",
            "is not an index or a range; write 0-99, 1,3,5 or 0-100:10",
        ),
        SchemaRule(
            f"{spec}.resources.devices",
            cel=_ONCE.format("one.class == other.class"),
            message="names a class twice; add the counts up",
        ),
        SchemaRule(
            f"{spec}.resources.anyOf",
            cel=_ONCE.format("one.class == other.class"),
            message="names a class twice; put its counts into one list",
        ),
        SchemaRule(
            f"{spec}.resources",
            cel="!has(self.devices) || !has(self.anyOf)"
            " || !self.devices.exists(one, self.anyOf.exists(other, one.class == other.class))",
            message="in devices and in anyOf; choose one of them",
        ),
        *(
            SchemaRule(
                f"{spec}.{folder}",
                cel=r"self == '.' || (self.matches('^[^/]+(/[^/]+)*/?$') && !self.matches('(^|/)\\.\\.?(/|$)'))",
                message="must be a folder below the job's own, such as data, or . for the job's own folder",
            )
            for folder in ("dependencies[].outputsInto", "workingDir")
        ),
        SchemaRule(
            f"{spec}.dependencies[]",
            cel="!has(self.outputsInto) || !has(self.condition) || self.condition != 'Started'",
            message="outputs are there when the other job has ended: choose Succeeded, Failed or Finished",
        ),
    )


SITE_RULES = (
    SchemaRule(
        "spec",
        {"anyOf": [{"properties": {"driver": {"not": {"enum": ["slurm"]}}}}, {"required": ["slurm"]}]},
        "self.driver != 'slurm' || has(self.slurm)",
        "driver slurm needs the section slurm, with at least a folder",
    ),
    SchemaRule(
        "spec",
        {
            "anyOf": [
                {"properties": {"driver": {"enum": ["slurm"]}}},
                {"properties": {"exposeNodes": {"enum": [False]}}},
            ]
        },
        "!self.exposeNodes || self.driver == 'slurm'",
        "exposeNodes shows the nodes of a Slurm site; remove it, or set driver to slurm",
    ),
    SchemaRule(
        "spec.slurm",
        cel="self.transport != 'SSH' || has(self.ssh)",
        message="transport SSH needs the section ssh with host, user, keyFile and knownHostsFile",
    ),
    SchemaRule(
        "spec.slurm",
        cel="self.transport != 'REST' || has(self.rest)",
        message="transport REST needs the section rest with url and keyFile or tokenFile",
    ),
    SchemaRule(
        "spec.slurm.accounts[].user",
        _NOT_ROOT,
        _CEL_NOT_ROOT,
        "jobs never run as root; name the person's own account",
    ),
    SchemaRule(
        "spec.slurm.accounts[].user",
        {"pattern": "^[a-z0_{][a-z0-9_.{}-]{0,63}$"},  # a lone 0 is root, of which the other rule speaks
        "self == '0' || self.matches('^[a-z_{][a-z0-9_.{}-]{0,63}$')",
        "must be the name of an account, or contain {member} or {tenant}",
    ),
    SchemaRule(
        "spec.slurm.accounts[].member",
        {"pattern": r"^[^*]*\*?[^*]*$"},
        "self.matches('^[^*]*[*]?[^*]*$')",
        "may contain one * only",
    ),
    SchemaRule(
        "spec.slurm.accounts[]",
        {
            "anyOf": [
                {"required": ["shared"], "properties": {"shared": {"enum": [True]}}},
                {"properties": {"user": {"pattern": r"\{member\}"}}},
                {"required": ["member"], "properties": {"member": {"pattern": r"^[^*]*$"}}},
            ]
        },
        "(has(self.shared) && self.shared) || self.user.contains('{member}') || "
        "(has(self.member) && !self.member.contains('*'))",
        "gives several people one account: name the member, write {member} in user, "
        "or set shared: true if they may change each other's files",
    ),
    SchemaRule(
        "spec.slurm.rest.url",
        {"pattern": "^(https?://|unix:/)"},
        "self.matches('^(https?://|unix:/)')",
        "must begin with http://, https:// or unix:/",
    ),
    SchemaRule(
        "spec.local.visible[]",
        {"pattern": "^/.", "not": {"pattern": _DOTS}},
        f"self.startsWith('/') && self != '/' && !self.matches({_CEL_DOTS})",
        "must be the whole path of a folder, and not all of the machine",
    ),
    SchemaRule("spec.devices[].paths[]", _BELOW_DEV, message="must be below /dev"),
    SchemaRule(
        "spec.prices.devices{}",
        {"minimum": 0, "maximum": 1_000_000},
        message="must be between 0 and 1000000 per hour",
    ),
)

TENANT_RULES = (
    SchemaRule(
        "spec.localAccount.user",
        _NOT_ROOT,
        _CEL_NOT_ROOT,
        "jobs never run as root; name another account, or none to get a uid of its own",
    ),
    SchemaRule(
        "metadata.name",
        {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
        message="cannot be a tenant's name, which is a namespace",
    ),
    SchemaRule(
        "metadata.name",
        {"not": {"pattern": "^(isthmus|kube)-"}},
        message="is reserved for the platform; choose another",
    ),
)

_GRID = "!has(self.search) || self.search.method == 'Grid'"
EXPERIMENT_RULES = (
    *job_rules("spec.template"),
    SchemaRule(
        "spec.template",
        cel="!has(self.array) && !has(self.ttlAfterFinished)",
        message="template.array and template.ttlAfterFinished have no place in an experiment; remove them",
    ),
    SchemaRule(
        "spec.template",
        cel="!has(self.intent) || self.intent == 'Run'",
        message="template.intent has no place in an experiment; set spec.intent",
    ),
    SchemaRule(
        "spec.parameters",
        cel=_ONCE.format("one.name == other.name"),
        message="parameters: a name is there twice; rename or remove one",
    ),
    SchemaRule(
        "spec",
        cel=f"!({_GRID}) || !has(self.parameters) || !self.parameters.exists(one, has(one.range))",
        message="has a range, which a Grid cannot enumerate; give values, or set search.method to Random or TPE",
    ),
    SchemaRule(
        "spec",
        cel=f"{_GRID} || (has(self.parameters) && size(self.parameters) > 0)",
        message="search: there is nothing to search; give parameters",
    ),
    SchemaRule(
        "spec",
        cel="!has(self.search) || self.search.method != 'TPE' || has(self.objective)",
        message="objective is required for TPE: which value is to be improved, and which way",
    ),
    SchemaRule(
        "spec",
        cel="!has(self.stop) || !has(self.stop.target) || has(self.objective)",
        message="stop.target needs an objective: the target of which value?",
    ),
    SchemaRule("spec.parameters[].range", cel="self.min <= self.max", message="min is above max; exchange them"),
    SchemaRule(
        "spec.parameters[].range",
        cel="!self.log || self.min > 0.0",
        message="min must be above 0 where log is set",
    ),
    SchemaRule(
        "spec.parameters[].range",
        cel="!self.log || !has(self.step)",
        message="step and log exclude each other; remove one",
    ),
    SchemaRule(
        "spec.parameters[].range",
        cel="!self.integer || [self.min, self.max, has(self.step) ? self.step : 1.0].all(n, double(int(n)) == n)",
        message="min, max and step must be whole numbers where integer is set",
    ),
    SchemaRule(
        "spec.parameters[]",
        {"oneOf": [{"required": ["values"]}, {"required": ["range"]}]},
        "has(self.values) != has(self.range)",
        "give exactly one of values (a list) and range (min and max)",
    ),
    SchemaRule(
        "spec.parameters[].name",
        {"not": {"enum": ["device", "site", "image", "repetition"]}},
        "!(self in ['device', 'site', 'image', 'repetition'])",
        "is set by the matrix; choose another name",
    ),
    *(
        SchemaRule(
            f"spec.matrix.{names}",
            cel=_ONCE.format("one == other"),
            message="names one twice; use repetitions to run it more than once",
        )
        for names in ("devices", "sites", "images")
    ),
    SchemaRule(
        "spec.search",
        cel="self.method != 'Grid' || !has(self.trials)",
        message="trials is for Random and TPE; a Grid tries every point",
    ),
    SchemaRule(
        "spec.search",
        cel="self.method != 'Random' || has(self.trials)",
        message="trials is required where method is Random: how many points to try",
    ),
    SchemaRule(
        "spec.search",
        cel="self.method != 'TPE' || has(self.trials)",
        message="trials is required where method is TPE: how many points to try",
    ),
    SchemaRule(
        "spec.search",
        cel="!has(self.pruning) || self.method == 'TPE'",
        message="pruning is for the method TPE; remove it or change method",
    ),
    SchemaRule(
        "spec.check",
        cel="(has(self.files) && size(self.files) > 0) || (has(self.values) && size(self.values) > 0)",
        message="says nothing to compare; name files, values or both",
    ),
    SchemaRule(
        "spec.report.file",
        {"minLength": 1, "not": {"pattern": rf"^/|{_DOTS}"}},
        f"self != '' && !self.startsWith('/') && !self.matches({_CEL_DOTS})",
        "must be a path below the job's own folder, such as metrics.json",
    ),
)

DEVICE_CLASS_RULES = (
    SchemaRule(
        "spec.meter",
        cel="(self.source == 'Command') == (has(self.command) && size(self.command) > 0)",
        message="source Command needs command, the words of a program; other sources have none",
    ),
    SchemaRule(
        "spec.use",
        cel="(self.source == 'Command') == (has(self.command) && size(self.command) > 0)"
        " && (self.source == 'File') == has(self.path)",
        message="source Command needs command, source File needs path; no source has more than its own",
    ),
    *(SchemaRule(f"spec.local.{paths}[]", _BELOW_DEV, message="must be below /dev") for paths in ("paths", "share")),
)
