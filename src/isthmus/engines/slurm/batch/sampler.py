"""The sampler: some lines of shell that the batch script starts beside the program, as the same user.

It writes the journal that `engines/sampling.py` describes, and at its end what the meters of the device classes counted
(`engines/meters.py`), for the job's own record. It wakes up every second at first, later less often, and starts one
`sleep` each time; everything but a site's own commands it reads with the shell alone: cpu time and memory from the
job's control group where Slurm made one, else from the processes. It needs no right that the job has not.

A meter of the whole node counts for other jobs too. Who was given all cpus of the node is given all of its power, else
it is shared out by cpu time; the job's usage at its end is by the cpus that Slurm gave to each. Where no meter is read,
power is what the power models say, and marked as estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isthmus.engines import meters
from isthmus.engines.metering import Power
from isthmus.engines.meters import WHOLE_NODE, Metering


@dataclass(frozen=True, slots=True)
class Guess:
    """Power by the models of what a run was given, in milliwatts; see `engines/metering.py`."""

    base: int
    """Drawn all the time: boards, and processors that are idle."""
    busy: int
    """That much more for every cpu that works."""
    milli_cpus: int


def guess(power: Mapping[str, Power], devices: Mapping[str, int], milli_cpus: int) -> Guess | None:
    """What the models say of a run; None if there is none."""
    boards = [power[name].busy_watts * n for name, n in devices.items() if name != "cpu" and name in power]
    cpu = power.get("cpu")
    if cpu is None and not boards:
        return None
    cpu = cpu or Power(0, 0)
    base = sum(boards) + cpu.idle_watts * milli_cpus / 1000
    return Guess(round(base * 1000), round((cpu.busy_watts - cpu.idle_watts) * 1000), milli_cpus)


def script(wanted: Metering, guessed: Guess | None, sys: str = "/sys") -> str:
    """The sampler of one run."""
    estimate = ""
    if guessed is not None:
        estimate = _ESTIMATE.format(base=guessed.base, busy=guessed.busy, cpus=guessed.milli_cpus)
    whole = [n for n, (_, meter) in enumerate(wanted.meters) if meter.source in WHOLE_NODE]
    own = [n for n in range(len(wanted.meters)) if n not in whole]
    energy = "".join(_OWN.format(n=n) for n in own) + "".join(_SHARED.format(n=n) for n in whole)
    reported = "".join(_REPORTED.format(n=n, source=meter.source) for n, (_, meter) in enumerate(wanted.meters))
    metered = bool(wanted.meters or wanted.uses)
    head = _HEAD.format(nap="" if metered else _NAP) + meters.lines(wanted, sys)
    head += "" if metered else "born=$first\n"
    reported = f'{{\n{reported}}} >"$run/.meters"\n' if reported else ""
    return head + _USED + _ENERGY.format(energy=energy, estimate=estimate) + _LOOP.format(reported=reported)


_HEAD = """\
run=$1
exec 3>&2 2>/dev/null
umask 077
over= sleeper=
trap 'over=1; [ -n "$sleeper" ] && kill $sleeper' TERM
read -r up others </proc/uptime || exit 0
napped=
{nap}boot=$(($(date +%s) - ${{up%.*}}))
page=$(getconf PAGESIZE) || page=4096
child=$2
until [ -n "$child" ] || [ -n "$over" ] || read -r child <"$run/.pid"; do sleep 0.1; done
"""

# Where nothing has to be read at the start, everything waits until there is something to say: most of what the sampler
# costs is its beginning, and many jobs are shorter than that.
_NAP = """\
first=${up%.*}${up#*.}0
sleep 1 &
sleeper=$!
[ -z "$over" ] && wait $sleeper
[ -n "$over" ] && { kill $sleeper; exit 0; }
sleeper= napped=1
read -r up others </proc/uptime
"""

_USED = r"""
# The job's control groups, if Slurm made any: of the whole job, not of this step alone.
cpu_file= memory_file=
while IFS=: read -r number names path; do
  case $path in */job_*) path=${path%%/step_*} ;; *) continue ;; esac
  case ",$names," in
    *,cpuacct,*) file=/sys/fs/cgroup/cpuacct$path/cpuacct.usage; [ -r "$file" ] && cpu_file=$file ;;
    *,memory,*) file=/sys/fs/cgroup/memory$path/memory.usage_in_bytes; [ -r "$file" ] && memory_file=$file ;;
    ,,) file=/sys/fs/cgroup$path
      [ -r "$file/cpu.stat" ] && cpu_file=$file/cpu.stat
      [ -r "$file/memory.current" ] && memory_file=$file/memory.current ;;
  esac
done </proc/self/cgroup

# Else: these processes and everything they begot, by what the kernel lists as children.
add() {
  for pid in $1; do
    read -r line </proc/$pid/stat || continue
    set -- ${line##*) }
    shift 11
    worked=$((worked + $1 + $2 + $3 + $4))
    shift 10
    held=$((held + $1))
    for list in /proc/$pid/task/*/children; do
      below=
      read -r below <"$list"
      [ -n "$below" ] && add "$below"
    done
  done
}

# Milliseconds of cpu time, bytes of memory: as the kubelet counts them, without files that the kernel merely keeps.
measure() {
  cpu= memory= kept=0
  case $cpu_file in
    */cpu.stat) while read -r word value; do
        [ "$word" = usage_usec ] && cpu=$((value / 1000)) && break
      done <"$cpu_file" ;;
    ?*) read -r value <"$cpu_file" && cpu=$((value / 1000000)) ;;
  esac
  if [ -n "$memory_file" ] && read -r memory <"$memory_file"; then
    while read -r word value; do
      case $word in inactive_file|total_inactive_file) kept=$value ;; esac
    done <"${memory_file%/*}/memory.stat"
    memory=$((memory > kept ? memory - kept : 0))
  fi
  if [ -z "$cpu" ] || [ -z "$memory" ]; then
    worked=0 held=0
    add "$child"
    [ -n "$cpu" ] || cpu=$((worked * 1000 / ticks))
    [ -n "$memory" ] || memory=$((held * page))
  fi
}

# What all processors of the node have worked, in milliseconds.
machine() {
  read -r word user nice system idle waiting irq soft others </proc/stat
  works=$(((user + nice + system + irq + soft) * 1000 / ticks))
}

# Thousandths get a 1 before them, to keep their zeros until it is taken off again.
decimal() {
  thousandths=$(($1 % 1000 + 1000))
  decimal=$(($1 / 1000)).${thousandths#1}
}
"""

_ENERGY = r"""
# Microjoules that the job accounts for, in $mine; empty if no meter is read.
mine= shared=0 cpu=0 cpu_was=0
machine
works_was=$works
alone=
[ "${{SLURM_CPUS_ON_NODE:-0}}" -ge "$(getconf _NPROCESSORS_ONLN)" ] && alone=1
energy() {{
  mine=
  machine
{energy}  [ -n "$mine" ] && mine=$((mine + shared))
  cpu_was=$cpu works_was=$works
}}
share() {{
  if [ -n "$alone" ]; then
    shared=$((shared + $1))
  elif [ $works -gt $works_was ] && [ $cpu -gt $cpu_was ]; then
    part=$((cpu - cpu_was)) all=$((works - works_was))
    [ $part -gt $all ] && part=$all
    shared=$((shared + $1 * part / all))
  fi
}}
estimate() {{
  joules=-
{estimate}}}
"""

_OWN = """\
  [ -n "$total{n}" ] && mine=$((${{mine:-0}} + total{n}))
"""
_SHARED = """\
  if [ -n "$total{n}" ]; then
    share $((total{n} - ${{was{n}:-0}}))
    was{n}=$total{n} mine=${{mine:-0}}
  fi
"""
_ESTIMATE = """\
  age=$((t - born)) most=$(((t - born) * {cpus} / 1000))
  [ $cpu -lt $most ] && most=$cpu
  decimal $((({base} * age + {busy} * most) / 1000))
  joules=$decimal~
"""
_REPORTED = """\
  [ -n "$total{n}" ] && echo "meter={source} $total{n}"
"""

_LOOP = r"""
look
while :; do
  [ -n "$napped" ] || rest
  napped=
  kill -0 "$child" || over=1
  stop=$over  # whoever was asked to stop before it looked has looked for the last time
  look
  [ -n "$stop" ] && break
  measure
  [ "$memory" -gt "${{most:-0}}" ] && most=$memory && echo "$most" >"$run/.most"
  energy
  estimate
  [ -n "$mine" ] && decimal $((mine / 1000)) && joules=$decimal
  busy=-
  [ -n "$use" ] && decimal $use && busy=${{decimal%?}}
  # How long the output is: where the program's standard output stands.
  size=-
  while read -r word value; do
    [ "$word" = pos: ] && size=$value && break
  done <"/proc/$child/fdinfo/1"
  decimal $cpu
  echo "$((boot + ${{up%.*}})).${{up#*.}}0 $decimal $memory $joules $busy $size" >>"$run/samples" || break
done
{reported}exit 0
"""
