"""Shell lines that read the meters of device classes on the node that has them. Pure texts, POSIX shell, no root.

`lines` defines a function `look`. Each call reads every meter and sensor once and leaves

- `total0`, `total1`, …: microjoules that each meter has counted since the first call, empty before it was ever read;
- `use`: how busy the devices are, in thousandths, empty if nobody says;
- `t`: the time of the look, in milliseconds since boot.

`rest` sleeps until the next look, or until `over` is set: a second at first, later longer, and never so short that all
this takes more than a hundredth of a core, whatever a site's own command costs. What cannot be read is left out,
and said once on descriptor 3, the sampler's own record; after three looks in vain it is not tried again.

- RAPL counts processors and memory of the whole node, and wraps around;
- Hwmon shows what sensors see: `power*_input`, or voltage times current as the INA3221 of Jetson boards has them;
- NVML is asked by `nvidia-smi`, once for power and use, about the GPUs that the job was given;
- a command of the site's own writes a number: joules so far, watts now, or how busy; it is given five seconds;
- a file holds how busy a device is, such as the `load` of a Jetson's GPU.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isthmus.resources.deviceclasses import DeviceClass, Meter, Use

WHOLE_NODE = frozenset({"RAPL", "Hwmon"})
"""Sources that count everything on a node: jobs that share it share what they count."""
_NOT_IN_VARIABLE = re.compile(r"[^A-Z0-9]")


@dataclass(frozen=True, slots=True)
class Metering:
    """What is read beside one run."""

    meters: tuple[tuple[str, Meter], ...] = ()
    """Class and meter; the one of class cpu counts for every run."""
    uses: tuple[Use, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.meters or self.uses)


def metering(classes: Mapping[str, DeviceClass], devices: Mapping[str, int]) -> Metering:
    """What there is to read of a run with these devices. Where NVML counts energy, it reports the use too."""
    given = {name: classes[name].spec for name in ("cpu", *sorted(devices)) if name in classes}
    uses = []
    for name, spec in given.items():
        implied = Use(source="NVML") if spec.meter is not None and spec.meter.source == "NVML" else None
        found = spec.use or implied
        if name != "cpu" and found is not None:
            uses.append(found)
    meters = tuple((name, spec.meter) for name, spec in given.items() if spec.meter is not None)
    return Metering(meters, tuple(use for n, use in enumerate(uses) if use not in uses[:n]))


def units_variable(name: str) -> str:
    """The variable that names a class's units to programs."""
    return f"ISTHMUS_UNITS_{_NOT_IN_VARIABLE.sub('_', name.upper())}"


def lines(wanted: Metering, sys: str = "/sys") -> str:
    """The functions `look` and `rest`."""
    parts = [_BASE]
    calls = []
    sources = [meter.source for _, meter in wanted.meters]
    if "NVML" in sources or any(use.source == "NVML" for use in wanted.uses):
        parts.append(_NVIDIA)
        calls.append("ask_nvidia")
    for number, (name, meter) in enumerate(wanted.meters):
        read, why = _read(meter, sys)
        why = shlex.quote(f"{meter.source} meter of {name}: {why}; its power is left out")
        parts.append(_METER.format(number=number, read=read, step=_step(meter), why=why))
        calls.append(f"meter{number}")
    for number, use in enumerate(wanted.uses):
        read, why = _read_use(use)
        full = round(use.full * 1000)
        why = shlex.quote(f"{use.source} for the use of devices: {why}; its use is left out")
        parts.append(_USE.format(number=number, read=read, full=full, why=why))
        calls.append(f"use{number}")
    look = "\n  ".join(calls)
    parts.append(_LOOK.format(calls=look or ":"))
    return "".join(parts)


def reporting(wanted: Metering) -> str:
    """A whole program that looks and writes what it saw, line by line: time, use, then the total of each meter."""
    totals = " ".join(f"${{total{number}:--}}" for number in range(len(wanted.meters)))
    return _REPORTING.format(lines=lines(wanted), seen=f"$t ${{use:--}} {totals}".rstrip())


_REPORTING = """\
exec 3>&2 2>/dev/null
over= sleeper=
trap 'over=1; [ -n "$sleeper" ] && kill $sleeper' TERM
{lines}while :; do
  stop=$over  # whoever was asked to stop before it looked has looked for the last time
  look
  echo "{seen}" || exit 0
  [ -n "$stop" ] && exit 0
  rest
done
"""

_BASE = """\
LC_ALL=C
export LC_ALL
ticks=$(getconf CLK_TCK) || ticks=100
limit=
command -v timeout >/dev/null && limit='timeout -k 1 5'

clock() {
  read -r up others </proc/uptime
  t=${up%.*}${up#*.}0
}

# A number in millionths, by the shell alone; numbers such as 1e-3 cost a process more.
micro() {
  case $1 in ''|.|*[!0-9.eE+-]*|*.*.*) return 1 ;; esac
  case $1 in *[!0-9.]*) set -- "$(printf %.6f "$1")" ;; esac
  case $1 in *[!0-9.]*) return 1 ;; esac
  whole=${1%%.*} part=
  case $1 in *.*) part=${1#*.} ;; esac
  while :; do case $whole in 0?*) whole=${whole#0} ;; *) break ;; esac; done
  part=${part}000000
  value=$((${whole:-0} * 1000000 + 1${part%"${part#??????}"} - 1000000))
}

# One line of output, as a number.
number_of() {
  read -r word others <<END
$1
END
  micro "$word"
}

clock
born=$t looks=0
rest() {
  looks=$((looks + 1)) nap=1
  [ $looks -ge 120 ] && nap=5
  [ $looks -ge 400 ] && nap=15
  clock
  read -r line </proc/$$/stat
  set -- ${line##*) }
  shift 11
  # Under a hundredth of a core, with something to spare.
  need=$((($1 + $2 + $3 + $4) * 150 / ticks - (t - born) / 1000))
  [ $need -gt $nap ] && nap=$need
  [ $nap -gt 60 ] && nap=60
  if [ -z "$over" ]; then
    sleep $nap &
    sleeper=$!
    [ -z "$over" ] && wait $sleeper
    [ -n "$over" ] && kill $sleeper
    sleeper=
  fi
}
"""

_METER = """\
total{number}= last{number}= before{number}= bad{number}=0
meter{number}() {{
  [ -z "$total{number}" ] && [ $bad{number} -ge 3 ] && return
  v= total=${{total{number}:-0}} last=$last{number} before=$before{number}
  {read}
  if [ -z "$v" ]; then
    [ $bad{number} -eq 0 ] && echo {why} >&3
    bad{number}=$((bad{number} + 1))
    return
  fi
  {step}
  total{number}=$total last{number}=$v before{number}=$t
}}
"""

_USE = """\
badly{number}=0
use{number}() {{
  [ $badly{number} -ge 3 ] && return
  busy= n=0
  {read}
  if [ -z "$busy" ]; then
    [ $badly{number} -eq 0 ] && echo {why} >&3
    badly{number}=$((badly{number} + 1))
    return
  fi
  # Millionths, of so many devices, against the thousandths that mean busy all the time.
  busy=$((busy / n / {full}))
  [ $busy -gt 1000 ] && busy=1000
  used=$((used + busy)) users=$((users + 1))
}}
"""

_LOOK = """\
look() {{
  clock
  used=0 users=0 use=
  {calls}
  [ $users -gt 0 ] && use=$((used / users))
}}
"""

_ADD = '[ -n "$last" ] && [ "$v" -ge "$last" ] && total=$((total + v - last))'
_INTEGRATE = '[ -n "$last" ] && total=$((total + (v + last) / 2 * (t - before) / 1000))'
_RAPL_ADDS = ":"  # zone by zone, while it is read

_RAPL = """\
zones=0
  for zone in {sys}/class/powercap/intel-rapl:*; do
    read -r name <"$zone/name" && read -r now <"$zone/energy_uj" || continue
    read -r span <"$zone/max_energy_range_uj" || continue
    case $name in package*|dram) ;; *) continue ;; esac
    zones=$((zones + 1)) v=1
    eval "was=\\$zone$zones; zone$zones=$now"
    [ -n "$was" ] || continue
    if [ "$now" -ge "$was" ]; then total=$((total + now - was)); else total=$((total + now + span + 1 - was)); fi
  done"""

_HWMON = """\
for chip in {sys}/class/hwmon/hwmon*; do
    read -r name <"$chip/name" || continue
    {chip}
    for file in "$chip"/power[0-9]*_input "$chip"/curr[0-9]*_input; do
      [ -r "$file" ] || continue
      channel=${{file##*/}} channel=${{channel%_input}}
      case $channel in
        power*) stem=$channel; read -r now <"$file" || continue ;;
        *) stem=in${{channel#curr}}
          read -r amps <"$file" && read -r volts <"$chip/${{stem}}_input" && now=$((amps * volts)) || continue ;;
      esac
      {label}
      v=$((${{v:-0}} + now))
    done
  done"""

# It takes a tenth of a second or so to ask, whatever is asked.
_NVIDIA = """\
ask_nvidia() {
  nvidia_power= nvidia_busy= nvidia_n=0
  [ "${nvidia_bad:-0}" -ge 3 ] && return
  gpus=${CUDA_VISIBLE_DEVICES:-$SLURM_JOB_GPUS}
  said=$($limit nvidia-smi ${gpus:+-i "$gpus"} --query-gpu=power.draw,utilization.gpu \\
    --format=csv,noheader,nounits </dev/null)
  while IFS=', ' read -r watts percent others; do
    micro "$watts" && nvidia_power=$((${nvidia_power:-0} + value))
    micro "$percent" && nvidia_busy=$((${nvidia_busy:-0} + value)) nvidia_n=$((nvidia_n + 1))
  done <<END
$said
END
  [ -n "$nvidia_power$nvidia_busy" ] && nvidia_bad=0 || nvidia_bad=$((${nvidia_bad:-0} + 1))
}
"""

_COMMAND = 'said=$($limit {command} </dev/null) && number_of "$said" && {then}'

_FILE = """\
for file in {path}; do
    read -r said <"$file" && number_of "$said" && busy=$((${{busy:-0}} + value)) n=$((n + 1))
  done"""


def _read(meter: Meter, sys: str) -> tuple[str, str]:
    """The lines that set `v`, and what to say when they did not."""
    match meter.source:
        case "RAPL":
            return _RAPL.format(sys=sys), f"no counter below {sys}/class/powercap may be read here"
        case "Hwmon":
            chip = f'[ "$name" = {shlex.quote(meter.chip)} ] || continue' if meter.chip else ":"
            label = ":"
            if meter.label:
                label = f'read -r said <"$chip/${{stem}}_label" && [ "$said" = {shlex.quote(meter.label)} ] || continue'
            return _HWMON.format(sys=sys, chip=chip, label=label), f"no such sensor below {sys}/class/hwmon is readable"
        case "NVML":
            return "v=$nvidia_power", "nvidia-smi is not there or reports no power"
        case "Command":
            return _command(meter.command, "v=$value"), f"{meter.command[0]} failed or wrote no number"


def _read_use(use: Use) -> tuple[str, str]:
    """The lines that add to `busy` and `n`, and what to say when they did not."""
    match use.source:
        case "NVML":
            return "busy=$nvidia_busy n=$nvidia_n", "nvidia-smi is not there or reports none"
        case "File":
            return _FILE.format(path=use.path), f"{use.path} cannot be read here"
        case "Command":
            return _command(use.command, "busy=$value n=1"), f"{use.command[0]} failed or wrote no number"


def _command(words: Sequence[str], then: str) -> str:
    return _COMMAND.format(command=shlex.join(words), then=then)


def _step(meter: Meter) -> str:
    if meter.source == "RAPL":
        return _RAPL_ADDS
    return _ADD if meter.source == "Command" and meter.unit == "Joules" else _INTEGRATE
