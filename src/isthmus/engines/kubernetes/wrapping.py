"""The shell lines that run in pods. Pure texts, POSIX shell; of the job's own image only /bin/sh is asked for.

The first process of a container cannot be killed from inside and takes everything else along when it ends: that is
ours. It starts the program, keeps both outputs in their true order (or standard error apart), holds the time limit,
passes signals on, and at the end leaves a report where Kubernetes keeps it with the pod's status.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from isthmus.engines import batch_scripts
from isthmus.engines.base import Run
from isthmus.engines.environment_words import in_environment
from isthmus.engines.shell_lines import cannot_run, of_script

WORK = "/work"
CONTROL = "/isthmus"
REPORT = f"{CONTROL}/report"
"""What became of an environment of Python packages that was to be made."""
ENVIRONMENTS = f"{CONTROL}/environments"
GRACE_SECONDS = 10
_CANNOT_RUN = cannot_run('"$1"')

# $1: separate or merged; $2: seconds, or nothing; $3: text of a script, or nothing; $4: the file that it reads; $5: the
# folder to start in; the rest is the program.
MAIN = f"""\
exec 2>/dev/null
errors=$1 limit=$2 text=$3 input=$4 folder=$5
shift 5
[ -n "$text" ] && printf '%s' "$text" >{CONTROL}/script
cd {WORK} || exit 127
child= grace= up= rest=
read -r up rest </proc/uptime
start=$up
missing=
end() {{
  [ -r {CONTROL}/grace ] && read -r grace <{CONTROL}/grace
  [ -z "$child" ] && return
  kill -s TERM $child 2>/dev/null
  [ -n "$grace" ] && {{ (sleep "$grace"; kill -s KILL $child) </dev/null >/dev/null 2>&1 & }}
}}
trap end TERM
for name in INT HUP QUIT USR1 USR2; do trap "kill -s $name \\$child 2>/dev/null" $name; done
why=
case $input in /*) ;; *) input={WORK}/$input ;; esac
if ! cd "$folder"; then why="the job's folder has no folder $folder to start in"
elif {_CANNOT_RUN}; then missing=$1 why="$1: not found, or not executable"
elif [ ! -r "$input" ]; then why="${{input#{WORK}/}}, which is to be its standard input, is not among its files"
fi
if [ -n "$why" ]; then
  if [ "$errors" = separate ]; then echo "isthmus: $why" >>{CONTROL}/stderr
  else echo "isthmus: $why"; fi
  code=127
else
  if [ "$errors" = separate ]; then "$@" <"$input" 2>>{CONTROL}/stderr &
  else "$@" <"$input" 2>&1 &
  fi
  child=$!
  if [ -n "$limit" ]; then
    (sleep "$limit"; : >{CONTROL}/late; kill -s TERM $child; sleep {GRACE_SECONDS}; kill -s KILL $child
    ) </dev/null >/dev/null 2>&1 &
  fi
  while :; do
    wait $child
    code=$?
    kill -0 $child 2>/dev/null || break
  done
fi
read -r up rest </proc/uptime
look() {{ [ -r "$2" ] && while read -r word number rest; do
    if [ "$1" = - ]; then echo "$3=$word"; break; fi
    [ "$word" = "$1" ] && echo "$3=$number"
  done <"$2"; }} 2>/dev/null
{{
  echo "code=$code"
  echo "start=$start"
  echo "end=$up"
  [ -n "$missing" ] && echo "missing=$missing"
  [ -r {REPORT} ] && read -r word <{REPORT} && echo "failed=${{word#failed: }}"
  [ -e {CONTROL}/late ] && echo "late=1"
  look - /sys/fs/cgroup/memory/memory.max_usage_in_bytes peak
  look - /sys/fs/cgroup/memory.peak peak
  look total_cache /sys/fs/cgroup/memory/memory.stat cache
  look file /sys/fs/cgroup/memory.stat cache
  look total_shmem /sys/fs/cgroup/memory/memory.stat shared
  look shmem /sys/fs/cgroup/memory.stat shared
  look - /sys/fs/cgroup/cpuacct/cpuacct.usage nanoseconds
  look - /sys/fs/cgroup/cpu,cpuacct/cpuacct.usage nanoseconds
  look usage_usec /sys/fs/cgroup/cpu.stat microseconds
  look oom_kill /sys/fs/cgroup/memory/memory.oom_control oom
  look oom_kill /sys/fs/cgroup/memory.events oom
}} >/dev/termination-log 2>/dev/null
: >{CONTROL}/ended
exit $code
"""

# Standard error, where it is wanted apart: what a container prints has one log, so it gets a container of its own.
ERRORS = f"""\
trap 'exit 0' TERM
: >>{CONTROL}/stderr
exec 3<{CONTROL}/stderr
while :; do
  last=
  [ -e {CONTROL}/ended ] && last=1
  cat <&3
  [ -n "$last" ] && exit 0
  sleep 0.1
done
"""

# Keeps the working folder reachable until it was collected.
FILES = f"""\
trap 'exit 0' TERM
while [ ! -e {CONTROL}/released ]; do sleep 0.5; done
"""

# Keeps the program from starting until the files are there.
STAGE = f"""\
trap 'exit 1' TERM
while [ ! -e {CONTROL}/staged ]; do sleep 0.1; done
"""


def unpack(size: int) -> list[str]:
    """Takes an archive of so many bytes, and lets the program begin."""
    script = f"head -c {size} | tar -xf - -C {WORK} && : >{CONTROL}/staged"
    return ["/bin/sh", "-c", script]


def find() -> list[str]:
    """Names everything in the working folder that is no folder, each ended by a NUL."""
    return ["/bin/sh", "-c", f"cd {WORK} && find . ! -type d -print0 2>/dev/null || :"]


def look(most: int) -> list[str]:
    """Describes so many entries of the working folder that are no folders: mode, size, time, name."""
    script = f"cd {WORK} && find . ! -type d -exec stat -c '%f %s %Y %n' {{}} + 2>/dev/null | head -n {most}; :"
    return ["/bin/sh", "-c", script]


def read(path: str, offset: int, size: int) -> list[str]:
    """Says size and number of a plain file that no link leads to, and then so many bytes of it."""
    script = (
        f'cd {WORK} && [ -f "$1" ] && [ "$(readlink -f -- "$1")" = "{WORK}/$1" ] && stat -c "%s %i" -- "$1" && '
        f'tail -c +{offset + 1} -- "$1" | head -c {size}; :'
    )
    return ["/bin/sh", "-c", script, "sh", path]


def pack(size: int) -> list[str]:
    """Takes so many bytes of names, each ended by a NUL, and packs them. What cannot be read is left out."""
    script = f"cd {WORK} && head -c {size} | xargs -0 -n 500 tar -cf - -- 2>/dev/null || :"
    return ["/bin/sh", "-c", script]


def release() -> list[str]:
    """Lets the helpers end."""
    return ["/bin/sh", "-c", f": >{CONTROL}/ended; : >{CONTROL}/released"]


def terminate(grace: float) -> list[str]:
    """Asks the program to end, and has it killed after so many seconds."""
    return ["/bin/sh", "-c", f"echo {grace:.3f} >{CONTROL}/grace; kill -s TERM 1"]


def words(run: Run) -> list[str]:
    """The program and its arguments; a script by the interpreter that its first line names."""
    found = list(run.command) if run.script is None else [*of_script(run.script, f"{CONTROL}/script"), *run.args]
    return in_environment(run.python, found, place=ENVIRONMENTS, report=REPORT, max_bytes=2**50)


def environment(run: Run, devices: Mapping[str, int], node: str = "") -> dict[str, str]:
    """What the program finds beside what its image sets."""
    cpus = run.milli_cpus / 1000 / max(1, run.tasks)
    ours = {"HOME": WORK, "TMPDIR": "/tmp", "OMP_NUM_THREADS": str(max(1, math.ceil(cpus)))}  # noqa: S108
    platform = {
        "ISTHMUS_JOB": run.job,
        "ISTHMUS_NAMESPACE": run.namespace,
        "ISTHMUS_RUN_ID": run.id,
        "ISTHMUS_CPUS": f"{cpus:g}",
        "ISTHMUS_TASKS": str(run.tasks),
    }
    platform |= {f"ISTHMUS_DEVICES_{_variable(name)}": str(count) for name, count in devices.items()}
    batch = batch_scripts.variables(run, folder=WORK, user="", node=node)
    return {**ours, **batch, **run.env, **platform}


def _variable(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.upper())
