#!/bin/bash
#SBATCH --job-name=steps
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --mem-per-cpu=50M
#SBATCH --output=steps.out
srun --label bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS"' | sort
srun -N1 -n1 --job-name=second --output=step-%s.out echo second
srun -N1 -n1 --job-name=third sh -c 'exit 6'
echo "a step ended with $?"
scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l
exit 6
