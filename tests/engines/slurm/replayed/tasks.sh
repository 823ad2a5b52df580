#!/bin/bash
#SBATCH --nodes=1
#SBATCH --tasks-per-node=2
#SBATCH --mem=300M
#SBATCH --time=01:30:00
#SBATCH --partition=all
srun true
