#!/bin/bash
#SBATCH --job-name=heredoc
#SBATCH --output=heredoc.out
#SBATCH --cpus-per-task=2

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
cat > settings.json <<EOF
{"threads": $OMP_NUM_THREADS, "job": "$SLURM_JOB_NAME"}
EOF
python3 - <<'EOF'
import json, os
print(json.load(open("settings.json"))["threads"] * 21, len(os.sched_getaffinity(0)) > 0)
EOF
