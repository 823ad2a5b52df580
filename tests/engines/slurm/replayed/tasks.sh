#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --mem=300M
#SBATCH --time=01:30:00
#SBATCH --partition=all
srun true
