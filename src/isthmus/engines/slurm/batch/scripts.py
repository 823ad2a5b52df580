"""The shell lines that run on the cluster. Pure texts, POSIX shell, nothing but the usual small programs.

Slurm is given three lines that start `launch` in the run's folder: one file for all that follows, since on a file
system that nodes share it is files that cost, and not lines. It begins with the batch script, which

- lets only the first job begin the run: a hard link is made or it is there, on every file system that nodes share;
- puts the output into the working folder too, under the names that `sbatch --output` would give it, where the job asks
  for that: a second name of the same file, so that a program may read what it wrote so far;
- starts a second shell, which runs the program in its foreground, its output going into files of its own, and which
  writes down how it ended. A shell that waits in the foreground always learns the true status, whatever signals come;
  one that uses `wait` does not: bash loses it when a signal comes in the moment in which the program ends;
- passes signals on to the program, whose number is in `.pid`;
- holds time limits that are not whole minutes;
- starts the sampler, which writes down what the job uses while it runs, and reads the meters of devices that have any;
- at the end writes how it ended, its times, cpu time and peak memory, so that all this is known even when Slurm has
  forgotten the job.

Called with the word `program`, the same file sets the environment and becomes the program: so neither Slurm's
accounting nor `ps` ever show the environment. Called with `sample` it is the sampler.

For a short job it is the processes that cost, here and on every node: what the shell can do by itself, it does.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from isthmus.engines.base import Run, Stream
from isthmus.engines.batch_scripts import array_variables, cpus_per_task, expand, filled, name_of, parts
from isthmus.engines.environment_words import in_environment
from isthmus.engines.meters import units_variable
from isthmus.engines.shell_lines import cannot_run, exports, of_script, read_from, through_env

from .submissions import USER

GRACE_SECONDS = 10


class EnvironmentFolder(NamedTuple):
    """Where a person's environments of Python packages are, as the program sees it."""

    path: str
    max_bytes: int


NO_FOLDER = EnvironmentFolder("", 0)


def submitted(folder: str) -> str:
    """What Slurm keeps."""
    path = shlex.quote(f"{folder}/launch")
    return (
        f"#!/bin/sh\n[ -r {path} ] && exec /bin/sh {path}\n"
        f'echo "isthmus: $(hostname) cannot read "{path}", which the control plane wrote" >&2\nexit 127\n'
    )


def launch(batch: str, program: str, sample: str) -> str:
    """The file in the run's folder. A shell reads a `case` whole, and then does one of its parts."""
    return f'case "$1" in\nprogram)\n{program};;\nsample)\nshift\n{sample};;\n*)\n{batch};;\nesac\n'


def batch(
    run: Run, folder: str, user: str, *, devices: Mapping[str, str] | None = None, metered: bool, ask_usage: bool
) -> str:
    """The script that runs on the first node.

    `devices` maps classes to generic resources; `metered` says that the sampler reads meters, and shall read them once
    more at the end; `ask_usage` has Slurm itself asked for peak memory and energy, where it keeps no accounting.
    """
    seconds = run.time_limit
    exact = f"{seconds:g}" if seconds is not None and seconds % 60 else ""
    errors = '2>>"$run/stderr"' if run.separate_streams else "2>&1"
    return _BATCH.format(
        folder=shlex.quote(folder),
        start=shlex.quote(run.working_dir or "."),
        logs=_logs(run, user),
        errors=errors,
        limit=exact,
        # What comes before it may take a while: then the time is taken once more.
        start_time="$(date +%s.%N)" if devices or run.log_files else "$born",
        grace=GRACE_SECONDS,
        units=_units(sorted((devices or {}).items())),
        usage=_USAGE if ask_usage else "",
        metered="wait $sampler\n  " if metered else "",
        counted='  [ -r "$run/.meters" ] && cat "$run/.meters"\n' if metered else "",
    )


_BATCH = """\
run={folder}
umask 077
read -r host </proc/sys/kernel/hostname
[ -e "$run/barred" ] && {{ echo "isthmus: cancelled before it began" >&2; exit 143; }}
me="$SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}}"
mine="$run/.begun.$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.$$"
born=$(date +%s.%N)
echo "$me $born $host $$" >"$mine" || exit 127
# A network file system may make the link and lose the answer: then it is ours, although it was there already.
if ! ln "$mine" "$run/begun" 2>/dev/null && [ "$(cat "$mine")" != "$(cat "$run/begun" 2>/dev/null)" ]; then
  if ! read -r job restarts rest 2>/dev/null <"$run/begun"; then
    rm -f "$mine"
    echo "isthmus: $host cannot make a link in $run, so nothing is begun" >&2
    exit 127
  fi
  if [ "$job" != "$SLURM_JOB_ID" ] || [ "$restarts" -ge "${{SLURM_RESTART_COUNT:-0}}" ]; then
    rm -f "$mine"
    echo "isthmus: job $job has begun this run already; nothing is done twice" >&2
    exit 0
  fi
  rm -f "$run/ended" "$run/late" "$run/missing" "$run/.meters" "$run/.pid"
  mv -f "$mine" "$run/begun"
fi
news="${{run%/*/*}}/news/${{run##*/}}"
true 2>/dev/null >"$news.begun"
[ -d "$run/tmp" ] || mkdir -p "$run/tmp"
cd "$run/work" || exit 127
cd {start} || {{ echo "isthmus: the job's folder has no folder "{start}" to start in" >>"$run/stdout"; exit 127; }}
{logs}{units}reset=
env --default-signal=INT,QUIT >/dev/null 2>&1 && reset="env --default-signal=INT,QUIT"
signalled=
pass_on() {{
  signalled=1 tries=0
  until read -r child 2>/dev/null <"$run/.pid"; do
    tries=$((tries + 1))
    if [ $tries -gt 200 ] || [ -e "$run/ended" ]; then return; fi
    sleep 0.05
  done
  kill -s $1 $child 2>/dev/null
}}
for name in TERM INT HUP QUIT USR1 USR2 CONT; do
  trap "pass_on $name" $name
done
(
  trap : TERM INT HUP QUIT USR1 USR2 CONT
  /bin/sh "$run/launch" sample "$run" </dev/null >/dev/null 2>>"$run/sampling.log" &
  sampler=$!
  watch=
  if [ -n "{limit}" ]; then
    (
      sleep {limit}
      : >"$run/late"
      read -r child <"$run/.pid"
      kill -s TERM $child 2>/dev/null
      sleep {grace}
      kill -s KILL $child 2>/dev/null
    ) </dev/null >/dev/null 2>&1 &
    watch=$!
  fi
  start={start_time}
  # Redirected inside: what this shell says of a program that a signal ended is no output of the program.
  (exec $reset /bin/sh "$run/launch" program </dev/null >>"$run/stdout" {errors})
  code=$?
  end=$(date +%s.%N)
  [ -n "$watch" ] && kill $watch 2>/dev/null
  kill $sampler 2>/dev/null
  times >"$run/.times" 2>/dev/null
  {metered}peak= cache=0 seen=
  # Of the whole job, where Slurm made it a control group: of any other group the kernel's figure is not this job's.
  while IFS=: read -r number names path; do
    case $path in */job_*) path=${{path%%/step_*}} ;; *) continue ;; esac
    case ",$names," in
      *,memory,*) group=/sys/fs/cgroup/memory$path most=memory.max_usage_in_bytes kept=total_cache held=total_shmem ;;
      ,,) group=/sys/fs/cgroup$path most=memory.peak kept=file held=shmem ;;
      *) continue ;;
    esac
    [ -r "$group/$most" ] && read -r peak <"$group/$most" && while read -r word value; do
      case $word in "$kept") cache=$((cache + value)) ;; "$held") cache=$((cache - value)) ;; esac
    done <"$group/memory.stat"
  done </proc/self/cgroup 2>/dev/null
  [ -r "$run/.most" ] && read -r seen <"$run/.most"
  usage=
  {usage}{{
    echo "job=$SLURM_JOB_ID"
    echo "code=$code"
    echo "start=$start"
    echo "end=$end"
    echo "peak=$peak"
    echo "cache=$cache"
    echo "seen=$seen"
    echo "usage=$usage"
    [ -e "$run/late" ] && echo "late=1"
    [ -e "$run/missing" ] && echo "missing=1"
    while read -r line; do echo "times=$line"; done <"$run/.times"
{counted}  }} >"$run/.ended" && mv -f "$run/.ended" "$run/ended"
  true 2>/dev/null >"$news"
  exit $code
) &
runner=$! code=
while :; do
  wait $runner
  code=$?
  if [ -e "$run/ended" ] || ! kill -0 $runner 2>/dev/null; then break; fi
done
# A shell that was signalled may have missed how the other one ended; that wrote it down. No more than that is read: the
# job may have put anything there, and a shell reads it byte by byte.
[ -z "$signalled" ] || code=$(head -c 4096 "$run/ended" 2>/dev/null | {{
  while IFS== read -r name value; do [ "$name" = code ] && code=$value; done
  echo "$code"
}})
exit ${{code:-1}}
"""

_USAGE = """\
usage=$(sstat -a -n -P -j "$SLURM_JOB_ID" --format=MaxRSS,ConsumedEnergyRaw 2>/dev/null | tr '\\n' ';')
"""


_LOGS = """\
show() {{
  : >>"$run/$1"
  mkdir -p "$(dirname "./$2")"
  {append}rm -f "./$2"
  ln "$run/$1" "./$2"
}} 2>>"$run/stdout"
"""


def _logs(run: Run, user: str) -> str:
    """A run that Slurm starts again goes on with the log that it had."""
    if not run.log_files:
        return ""
    append = '[ -s "$run/$1" ] || [ ! -f "./$2" ] || cat "./$2" >>"$run/$1"\n  ' if run.append_logs else ""
    lines = [f"show {stream.value} {name}\n" for stream, name in _log_files(run, user)]
    return _LOGS.format(append=append) + "".join(lines)


def _log_files(run: Run, user: str) -> list[tuple[Stream, str]]:
    """The files that the log is to be seen as. Number and node are known when the job begins."""
    part = run.array
    known = parts(
        "", name_of(run), index=part.index if part else None, array=str(part.number) if part else "", user=user, node=""
    )

    def value(letter: str, width: int) -> str:
        if known[letter]:
            return shlex.quote(filled(known[letter], width))
        if letter == "N":
            return '"$SLURMD_NODENAME"'
        return f'"$(printf %0{width}d "$SLURM_JOB_ID")"' if width else '"$SLURM_JOB_ID"'

    return [(stream, expand(pattern, value, shlex.quote)) for stream, pattern in run.log_files.items()]


def _units(devices: Sequence[tuple[str, str]]) -> str:
    """Slurm sets no variable for boards: its own description of the job names the units."""
    if not devices:
        return ""
    lines = ['scontrol -o -d show job "$SLURM_JOB_ID" >"$run/.units" 2>/dev/null && mv -f "$run/.units" "$run/units"']
    for name, gres in devices:
        pattern = f"s/.*{re.escape(gres).replace('/', '.')}:[0-9]*(IDX:\\([0-9,-]*\\)).*/\\1/p"
        variable = units_variable(name)
        lines.append(f'{variable}=$(sed -n {shlex.quote(pattern)} "$run/units"); export {variable}')
    return "\n".join(lines) + "\n"


def program(
    run: Run,
    folder: str,
    env: Mapping[str, str],
    *,
    user: str = "",
    numbered: bool = True,
    environments: EnvironmentFolder = NO_FOLDER,
    image: str = "",
) -> str:
    """The lines that set the environment and become the program, in the home of `user` where it has no other.

    `numbered`: its number is what signals go to.
    """
    words = _command(run, folder, environments, image)
    first = shlex.quote(words[0])
    lines = [
        *([f"echo $$ >{shlex.quote(f'{folder}/.pid')}"] if numbered else []),
        "umask 022",
        *([] if "HOME" in env else _home(folder, user)),
        *exports(env),
        f"if {cannot_run(first)}; then",
        f"  : >{shlex.quote(f'{folder}/missing')}",
        f'  echo "isthmus: "{first}": not found, or not executable" >&2',
        "  exit 127",
        "fi",
        *([read_from(run.stdin, f"{folder}/work/")] if run.stdin else []),
        f"exec {through_env(env)}{shlex.join(words)}",
    ]
    return "\n".join(lines) + "\n"


def _home(folder: str, user: str) -> list[str]:
    return [
        f"HOME=~{user}" if USER.fullmatch(user) else "HOME=",
        f'[ -d "$HOME" ] || HOME={shlex.quote(f"{folder}/work")}',
        "export HOME",
    ]


def _command(run: Run, folder: str, environments: EnvironmentFolder, image: str) -> list[str]:
    """A command runs once for every task; a script runs once and starts its tasks itself, as with sbatch."""
    script = [*of_script(run.script, f"{folder}/script"), *run.args] if run.script is not None else None
    words = in_environment(
        run.python,
        script or run.command,
        place=environments.path,
        report=f"{folder}/missing",
        max_bytes=environments.max_bytes,
        image=image,
    )
    alone = script is not None or (run.tasks == 1 and run.nodes == 1)
    return words if alone else ["srun", "--", *words]


def environment(run: Run, user: str, folder: str) -> dict[str, str]:
    """What the program finds beside what Slurm itself sets."""
    cpus = run.milli_cpus / 1000 / max(1, run.tasks)
    ours = {
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": f"{folder}/tmp",  # noqa: S108 - its own
        "OMP_NUM_THREADS": str(max(1, int(-(-cpus // 1)))),
        # Which `sbatch` sets, and slurmrestd does not.
        "SLURM_SUBMIT_DIR": f"{folder}/work",
        "SLURM_CPUS_PER_TASK": cpus_per_task(run),
    }
    platform = {
        "ISTHMUS_JOB": run.job,
        "ISTHMUS_NAMESPACE": run.namespace,
        "ISTHMUS_RUN_ID": run.id,
        "ISTHMUS_CPUS": f"{cpus:g}",
        "ISTHMUS_TASKS": str(run.tasks),
    }
    return {**ours, **array_variables(run), **run.env, **platform}
