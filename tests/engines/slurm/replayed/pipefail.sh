#!/bin/bash -l
#SBATCH -J pipefail -o pipefail.out
set -euo pipefail
echo before
grep nothing-of-this inputs.txt | sort
echo not reached
