"""The sampler: a few lines of shell that the batch script starts beside the program, as the same user.

It writes the journal that `engines/sampling.py` describes. It wakes up every second at first, later less often, and
starts one `sleep` each time; everything else it reads with the shell alone, from the job's control group where Slurm
made one, else from the processes. It needs no right that the job has not. Energy is not among what it can see.
"""

from __future__ import annotations

SAMPLER = r"""run=$1 child=$2
umask 077
read -r up rest </proc/uptime || exit 0
boot=$(($(date +%s) - ${up%.*}))
ticks=$(getconf CLK_TCK 2>/dev/null) || ticks=100
page=$(getconf PAGESIZE 2>/dev/null) || page=4096

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
    { read -r line </proc/$pid/stat; } 2>/dev/null || continue
    set -- ${line##*) }
    shift 11
    used=$((used + $1 + $2 + $3 + $4))
    shift 10
    held=$((held + $1))
    for list in /proc/$pid/task/*/children; do
      below=
      { read -r below <"$list"; } 2>/dev/null
      [ -n "$below" ] && add "$below"
    done
  done
}

# Thousandths get a 1 before them, to keep their zeros until it is taken off again.
measure() {
  cpu= memory=
  case $cpu_file in
    */cpu.stat) while read -r word value; do
        [ "$word" = usage_usec ] && cpu=$((value / 1000000)).$((value / 1000 % 1000 + 1000)) && break
      done <"$cpu_file" ;;
    ?*) read -r value <"$cpu_file" && cpu=$((value / 1000000000)).$((value / 1000000 % 1000 + 1000)) ;;
  esac
  [ -n "$memory_file" ] && read -r memory <"$memory_file"
  if [ -z "$cpu" ] || [ -z "$memory" ]; then
    used=0 held=0
    add "$child"
    [ -n "$cpu" ] || cpu=$((used / ticks)).$((used % ticks * 1000 / ticks + 1000))
    [ -n "$memory" ] || memory=$((held * page))
  fi
  cpu=${cpu%.*}.${cpu##*.1}
}

nap=
trap '[ -n "$nap" ] && kill $nap 2>/dev/null; exit 0' TERM
n=0 every=1
while :; do
  sleep $every &
  nap=$!
  wait $nap
  kill -0 "$child" 2>/dev/null || exit 0
  n=$((n + 1))
  [ $n -ge 120 ] && every=5
  [ $n -ge 400 ] && every=15
  measure 2>/dev/null
  # How long the output is: where the program's standard output stands.
  size=-
  { while read -r word value; do
    [ "$word" = pos: ] && size=$value && break
  done <"/proc/$child/fdinfo/1"; } 2>/dev/null
  read -r up rest </proc/uptime
  echo "$((boot + ${up%.*})).${up#*.}0 $cpu $memory - - $size" >>"$run/samples" || exit 0
done
"""
