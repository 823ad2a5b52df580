"""The shell lines of `launch` for a run in an image. Pure texts; see `batch/scripts` for the rest of that file.

On the node, `program` tries the runtimes in their order, and the first one that gets as far as the image's own shell
has it: that shell leaves a file `.inside`, and only a runtime that did not come so far is followed by the next. In the
container, `inside` runs the program in its foreground and writes down how it ended (`.code`): that counts, and not what
the runtime says, which may have been ended by the same signal as the program, and before it.

A command of several tasks is started by `srun` on the nodes, one container for each task.

| in the container | |
| --- | --- |
| `/job` | the job's folder, where the program starts |
| `/tmp` | its own |
| `/run/isthmus` | the run's folder: `launch`, and what is written down |
| `/run/isthmus/environments` | the person's environments of Python packages, if the run wants one |
| `/run/libraries` | files of the node that a DeviceClass names, in front of the image's own |
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from isthmus.engines.base import Run
from isthmus.engines.slurm.batch import scripts
from isthmus.engines.slurm.batch.scripts import NO_FOLDER, EnvironmentFolder
from isthmus.images.runtimes import RUNTIMES, Bind, ContainerView
from isthmus.images.runtimes.base import placeholders, start
from isthmus.images.unpacking import MOUNTED

HOME, RUN_HOME, LIBRARIES = "/job", "/run/isthmus", "/run/libraries"
ENVIRONMENTS = f"{RUN_HOME}/environments"
TMP = "/tmp"  # noqa: S108 - its own
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED_ON = ("SLURM_", "SRUN_", "PMI", "PMIX_")
"""Variables that mean something to srun."""
_GONE = '"the image {digest} is no longer at the site, as $(uname -n) sees it; submit the job again"'


@dataclass(frozen=True, slots=True)
class ImageRoot:
    """Where the image lies, and what may run it."""

    digest: str
    root: str
    env: Mapping[str, str]
    runtimes: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    """Patterns of files of the node."""


def environment(run: Run, user: str, folder: str, image: ImageRoot) -> dict[str, str]:
    """What the program finds: what the image sets, and everything that is the job's."""
    ours = scripts.environment(run, user, folder)
    own = {"HOME": HOME, "TMPDIR": TMP, "SLURM_SUBMIT_DIR": HOME}
    if run.tasks > 1 or run.nodes > 1:
        # Each container has a user namespace of its own: one task cannot open what another one has in /proc.
        own["UCX_POSIX_USE_PROC_LINK"] = "n"
    own = {name: value for name, value in own.items() if name not in run.env}
    theirs = {name for name in ("SHELL", "LANG") if name in image.env and name not in run.env}
    return {"PATH": IMAGE_PATH, **image.env, **{n: v for n, v in ours.items() if n not in theirs}, **own}


def program(
    run: Run, folder: str, env: Mapping[str, str], image: ImageRoot, environments: EnvironmentFolder = NO_FOLDER
) -> str:
    """The lines of `program`, with those that it has the same file called with again."""
    alone = run.script is not None or (run.tasks == 1 and run.nodes == 1)
    inside = _inside(run, env, image, alone=alone, most=environments.max_bytes)
    outside = _alone(folder, image, environments) if alone else _tasks(run, folder, image, environments)
    return f'case "$2" in\n{inside}*)\n{outside};;\nesac\n'


def _outside(folder: str, image: ImageRoot, mark: str, environments: EnvironmentFolder) -> list[str]:
    """Start the container, with one runtime after the other until one has it; `code` is what it ended with."""
    tmp = f"{folder}{TMP}"
    binds = [Bind(f"{folder}/work", HOME, True), Bind(tmp, TMP, True), Bind(folder, RUN_HOME, True)]
    binds += [Bind(f"/{'/'.join(place)}", f"/{'/'.join(place)}") for place in MOUNTED]
    lines = [
        f"run={shlex.quote(folder)}",
        'fail() { : >"$run/missing"; echo "isthmus: $*" >&2; exit 127; }',
        f"[ -r {shlex.quote(image.root)} ] || fail {_GONE.format(digest=image.digest)}",
    ]
    if image.libraries:
        binds.append(Bind(f"{folder}/libraries", LIBRARIES))
        lines.append('mkdir -p "$run/libraries"')
        lines.append(placeholders(f"{folder}/libraries", image.libraries))
    if environments.path:
        # Within the run's folder, which is bound before: images that were unpacked long ago have no other place for it.
        binds.append(Bind(environments.path, ENVIRONMENTS, True))
        lines.append(f'mkdir -p "$run/environments" {shlex.quote(environments.path)}')
    container = ContainerView(image.root, tuple(binds))
    lines += ["tried= code=127", f'mark="$run/{mark}"', '[ ! -e "$mark" ] || rm -f "$mark"']
    for name in image.runtimes:
        runtime = RUNTIMES[name]
        body = start(runtime, container, image.libraries, LIBRARIES).replace("\n", "\n  ")
        lines += [
            'if [ -e "$mark" ]; then :',
            f"elif ! command -v {shlex.quote(runtime.program)} >/dev/null 2>&1; then",
            f'  tried="$tried, {name} is not installed"',
            "else",
            "(",
            f"  {body}",
            ")",
            "  code=$?",
            f'  [ -e "$mark" ] || tried="$tried, {name} ended with $code before the image began"',
            "fi",
        ]
    lines.append(
        '[ -e "$mark" ] || fail "no container runtime works on $(uname -n) now:${tried#,}. Ask its administrator, or '
        'choose another site"'
    )
    return lines


def _alone(folder: str, image: ImageRoot, environments: EnvironmentFolder) -> str:
    signals, code = "TERM INT HUP QUIT USR1 USR2 CONT", shlex.quote(f"{folder}/.code")
    lines = [
        f"trap : {signals}",
        f"[ ! -e {code} ] || rm -f {code}",
        f"set -- /bin/sh {RUN_HOME}/launch program inside",
        *_outside(folder, image, ".inside", environments),
        # A runtime may be gone before the program is: it is waited for, and its own word counts.
        'while [ ! -s "$run/.code" ] && read -r child 2>/dev/null <"$run/.pid" && kill -0 "$child" 2>/dev/null; do',
        "  sleep 0.1",
        "done",
        'read -r code 2>/dev/null <"$run/.code"',
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def _tasks(run: Run, folder: str, image: ImageRoot, environments: EnvironmentFolder) -> str:
    plain = [f"export {name}={shlex.quote(value)}" for name, value in run.env.items() if name.startswith(_PASSED_ON)]
    launch = shlex.quote(f"{folder}/launch")
    each = [f"set -- /bin/sh {RUN_HOME}/launch program each"]
    each += _outside(folder, image, ".inside.$SLURM_PROCID", environments)
    lines = [
        'if [ "$2" != task ]; then',
        f"  rm -f {shlex.quote(folder)}/.inside.*",
        f"  echo $$ >{shlex.quote(f'{folder}/.pid')}",
        *(f"  {line}" for line in plain),
        f"  exec srun -- /bin/sh {launch} program task",
        "fi",
        *each,
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def _inside(run: Run, env: Mapping[str, str], image: ImageRoot, *, alone: bool, most: int) -> str:
    """What is done in the container."""
    if image.libraries:
        before = env.get("LD_LIBRARY_PATH")
        env = {**env, "LD_LIBRARY_PATH": f"{LIBRARIES}:{before}" if before else LIBRARIES}
    single = replace(run, tasks=1, nodes=1)
    begin = f"cd {HOME} || exit 127\n"
    if run.working_dir:
        path = shlex.quote(run.working_dir)
        gone = f'echo "isthmus: the job\'s folder has no folder "{path}" to start in" >&2'
        begin += f"cd -- {path} || {{ {gone}; exit 127; }}\n"
    place = EnvironmentFolder(ENVIRONMENTS, most)
    become = begin + scripts.program(single, RUN_HOME, env, numbered=alone, environments=place, image=image.digest)
    if not alone:
        return f"each)\n: >{RUN_HOME}/.inside.$SLURM_PROCID\n{become};;\n"
    supervised = (
        f": >{RUN_HOME}/.inside\ntrap : TERM INT HUP QUIT USR1 USR2 CONT\n"
        f"/bin/sh {RUN_HOME}/launch program contained\ncode=$?\necho $code >{RUN_HOME}/.code\nexit $code\n"
    )
    return f"inside)\n{supervised};;\ncontained)\n{become};;\n"


def in_order(wanted: Sequence[str], found: Sequence[str]) -> tuple[str, ...]:
    """The runtimes to try: those that were seen to work, and behind them the others, in case a node differs."""
    return tuple(found) + tuple(name for name in wanted if name not in found)
