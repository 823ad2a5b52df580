#!/bin/bash
#SBATCH -J sweep
#SBATCH --array=1-5:2%2
#SBATCH -o logs/%A_%3a.out
#SBATCH -t 10

line=$(sed -n "${SLURM_ARRAY_TASK_ID}p" inputs.txt)
echo "element $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT ($SLURM_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX): $line"
echo "$line" | tr a-z A-Z > "result-${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}.txt"
[ "$SLURM_ARRAY_TASK_ID" != 3 ] || exit 3
