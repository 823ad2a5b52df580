"""Every option that sbatch documents, and how a word of a script is understood as one of them. Pure data and look-up.

As with sbatch, a long option may be cut short as long as it is unambiguous, and some have a second spelling.
"""

from __future__ import annotations

from collections.abc import Mapping

from isthmus.errors import Invalid

NEEDS_VALUE = frozenset({
    "account", "acctg-freq", "array", "batch", "bb", "bbf", "begin", "chdir", "cluster-constraint", "clusters",
    "comment", "constraint", "container", "container-id", "core-spec", "cores-per-socket", "cpu-freq", "cpus-per-gpu",
    "cpus-per-task", "deadline", "delay-boot", "dependency", "distribution", "error", "exclude", "export",
    "export-file", "extra", "extra-node-info", "gid", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node",
    "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "input", "job-name", "kill-on-invalid-dep",
    "licenses", "mail-type", "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus",
    "network", "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node",
    "ntasks-per-socket", "open-mode", "output", "partition", "power", "prefer", "priority", "profile", "qos",
    "reservation", "resv-ports", "segment", "signal", "sockets-per-node", "switches", "thread-spec",
    "threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-task", "uid", "wait-all-nodes", "wckey",
    "wrap",
})  # fmt: skip
MAY_HAVE_VALUE = frozenset({"exclusive", "get-user-env", "nice", "no-kill", "oom-kill-step", "propagate", "requeue"})
"""Only behind an equals sign: the next word is another option."""
NO_VALUE = frozenset({
    "contiguous", "help", "hold", "ignore-pbs", "no-requeue", "overcommit", "oversubscribe", "parsable", "quiet",
    "reboot", "spread-job", "stepmgr", "test-only", "usage", "use-min-nodes", "verbose", "version", "wait",
})  # fmt: skip
OPTIONS = NEEDS_VALUE | MAY_HAVE_VALUE | NO_VALUE
SYNONYMS: Mapping[str, str] = {
    "tasks-per-node": "ntasks-per-node",
    "workdir": "chdir",
    "share": "oversubscribe",
}
SHORT: Mapping[str, str] = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "h": "help",
    "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution",
    "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos",
    "S": "core-spec", "s": "oversubscribe", "t": "time", "V": "version", "v": "verbose", "W": "wait",
    "w": "nodelist", "x": "exclude",
}  # fmt: skip


def full_name(written: str, where: str) -> str:
    """The option that is meant; raises Invalid for one that sbatch would refuse."""
    if written in OPTIONS:
        return written
    if written in SYNONYMS:
        return SYNONYMS[written]
    fitting = sorted({SYNONYMS.get(name, name) for name in (*OPTIONS, *SYNONYMS) if name.startswith(written)})
    if len(fitting) == 1:
        return fitting[0]
    if fitting and written:
        raise Invalid(f"{where}: --{written} is ambiguous: it may be {', '.join(f'--{name}' for name in fitting)}")
    from difflib import get_close_matches

    near = get_close_matches(written, OPTIONS, 1)
    hint = f"; did you mean --{near[0]}?" if near else ""
    raise Invalid(f"{where}: --{written} is not an option of sbatch{hint}")


def takes_next_word(name: str) -> bool:
    """Whether the value of an option may be the next word."""
    return name in NEEDS_VALUE
