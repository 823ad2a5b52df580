#!/bin/bash
#SBATCH --job-name=hello
#SBATCH --output=%x.%j.out
#SBATCH --time=00:10:00
#SBATCH --mem=200M

echo "job $SLURM_JOB_ID runs on $SLURM_JOB_NODELIST in $(pwd)"
umask
grep -c . "$SLURM_JOB_NAME.$SLURM_JOB_ID.out"
