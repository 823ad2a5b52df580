"""Shell lines that measure energy on the node, for classes of devices that name a meter. Pure texts.

Each meter is a loop beside the program. Once a second it reads a counter (microjoules) or a power (microwatts), adds up
what was counted or integrates what was drawn, and keeps the sum in a file. A meter that cannot be read leaves no file,
and the energy is estimated as without one.

- RAPL counts processors and memory of the whole node, and wraps around;
- Hwmon shows what sensors see: `power*_input`, or voltage times current as the INA3221 of Jetson boards has them;
- NVML is asked by `nvidia-smi` for the GPUs that the job was given;
- a command of the site's own writes a number: joules so far, or watts now.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from isthmus.resources.deviceclasses import Meter

WHOLE_NODE = frozenset({"RAPL", "Hwmon"})
"""Sources that count everything on a node: jobs that share it share what they count."""


def begin(meters: Sequence[Meter], sys: str = "/sys") -> str:
    """The lines that start the meters; `$run` is the run's folder."""
    if not meters:
        return ""
    loops = [_LOOP.format(number=n, read=_read(meter, sys), step=_step(meter)) for n, meter in enumerate(meters)]
    return _CLOCK + "".join(loops)


def end(meters: Sequence[Meter]) -> str:
    """The lines that stop them."""
    return _STOP if meters else ""


def tell(meters: Sequence[Meter]) -> str:
    """The lines that write what they counted into the job's word: source, microjoules."""
    line = '  [ -s "$run/.meter{n}" ] && read -r sum <"$run/.meter{n}" && echo "meter={name} $sum"\n'
    return "".join(line.format(n=n, name=meter.source) for n, meter in enumerate(meters))


_CLOCK = """\
clock() {
  t=$(date +%s%N)
  case $t in *[!0-9]*) t=$(date +%s)000 ;; *) t=${t%??????} ;; esac
}
meters=
"""

_LOOP = """\
(
  over= total=0 last=
  trap 'over=1' TERM
  while :; do
    stop=$over  # whoever was told to stop before it looked has looked for the last time
    clock
    {read}
    if [ -n "$v" ]; then
      {step}
      last=$v before=$t
      echo "$total" >"$run/.meter{number}.new" && mv -f "$run/.meter{number}.new" "$run/.meter{number}"
    fi
    [ -n "$stop" ] && exit 0
    [ -n "$over" ] || {{ sleep 1 & wait $!; }}
  done
) </dev/null >/dev/null 2>&1 &
meters="$meters $!"
"""

_STOP = """\
for meter in $meters; do kill -s TERM $meter 2>/dev/null; wait $meter; done
"""

_ADD = '[ -n "$last" ] && [ "$v" -ge "$last" ] && total=$((total + v - last))'
_INTEGRATE = '[ -n "$last" ] && total=$((total + (v + last) / 2 * (t - before) / 1000))'
_RAPL_ADDS = ":"  # zone by zone, while it is read

_RAPL = """\
v= n=0
    for zone in {sys}/class/powercap/intel-rapl:*; do
      read -r name <"$zone/name" && read -r now <"$zone/energy_uj" || continue
      read -r span <"$zone/max_energy_range_uj" || continue
      case $name in package*|dram) ;; *) continue ;; esac
      n=$((n + 1)) v=1
      eval "was=\\$zone$n; zone$n=$now"
      [ -n "$was" ] || continue
      if [ "$now" -ge "$was" ]; then total=$((total + now - was)); else total=$((total + now + span + 1 - was)); fi
    done"""

_HWMON = """\
v=
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

_NVML = """\
gpus=${CUDA_VISIBLE_DEVICES:-$SLURM_JOB_GPUS}
    v=$(nvidia-smi ${gpus:+-i "$gpus"} --query-gpu=power.draw --format=csv,noheader,nounits |
      awk '$1 + 0 == $1 { s += $1; n = 1 } END { if (n) printf "%.0f", s * 1000000 }')"""

_COMMAND = """\
v=$({command} | awk 'NR == 1 && $1 + 0 == $1 {{ printf "%.0f", $1 * 1000000 }}')"""


def _read(meter: Meter, sys: str) -> str:
    match meter.source:
        case "RAPL":
            return _RAPL.format(sys=sys)
        case "Hwmon":
            chip = f'[ "$name" = {shlex.quote(meter.chip)} ] || continue' if meter.chip else ":"
            label = ":"
            if meter.label:
                label = f'read -r said <"$chip/${{stem}}_label" && [ "$said" = {shlex.quote(meter.label)} ] || continue'
            return _HWMON.format(sys=sys, chip=chip, label=label)
        case "NVML":
            return _NVML
        case "Command":
            return _COMMAND.format(command=shlex.join(meter.command))


def _step(meter: Meter) -> str:
    if meter.source == "RAPL":
        return _RAPL_ADDS
    return _ADD if meter.source == "Command" and meter.unit == "Joules" else _INTEGRATE
