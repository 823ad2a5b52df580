#!/bin/bash
#SBATCH --job-name="My Train"
#SBATCH --output="logs/%x-%6j_%u_%N_%t_%a_%A_100%%.out"
#SBATCH --error="logs/%x %J %s %n.err"
echo out
echo err >&2
