#!/bin/bash
#SBATCH --job-name=dependent
#SBATCH --dependency=afterany:@HELLO@
#SBATCH --output=dependent.out
echo "hello is over: $(squeue -h -j @HELLO@ -t R 2>/dev/null | wc -l)"
