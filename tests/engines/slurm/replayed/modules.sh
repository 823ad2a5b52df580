#!/bin/bash
#SBATCH --job-name=modules
#SBATCH --output=modules.out
set -e
module load gcc/12.2 openmpi
echo not reached
