#!/bin/bash
#SBATCH -J folder -o folder.out
cd /
cd "$SLURM_SUBMIT_DIR" || exit 9
mkdir -p results/deep
cp inputs.txt results/deep/copy.txt
ls
