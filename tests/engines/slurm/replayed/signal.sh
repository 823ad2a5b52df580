#!/bin/bash
#SBATCH --job-name=checkpoint
#SBATCH --output=checkpoint.out
#SBATCH --signal=B:USR1@60
#SBATCH --time=5
#SBATCH --requeue
#SBATCH --open-mode=append

save() {
    echo "caught USR1, restart ${SLURM_RESTART_COUNT:-0}"
    echo 17 > state.txt
    exit 85
}
trap save USR1
(sleep 0.3; kill -USR1 $$) &
sleep 60 &
wait %2
echo not reached
