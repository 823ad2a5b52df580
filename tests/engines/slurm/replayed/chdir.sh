#!/bin/bash
#SBATCH --chdir=sub
#SBATCH --output=below-%x.out
#SBATCH --job-name=chdir
pwd
echo "from $SLURM_SUBMIT_DIR"
cat here.txt > copy.txt
