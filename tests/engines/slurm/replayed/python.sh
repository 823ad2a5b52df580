#!/usr/bin/env python3
#SBATCH --job-name=python
#SBATCH --output=python-%j.out
#SBATCH --error=python-%j.err
#SBATCH --ntasks=1

import os
import sys

print("standard output of", os.environ["SLURM_JOB_ID"])
print("standard error", file=sys.stderr)
with open("answer.txt", "w") as file:
    print(6 * 7, sys.argv[1:], file=file)
sys.exit(5)
