#!/bin/bash
#SBATCH --job-name=cleanup
#SBATCH --output=cleanup.out
set -u
scratch=$(mktemp -d "${TMPDIR:-/tmp}/replay.XXXXXX")
finish() {
    code=$?
    cp "$scratch/result.txt" "$SLURM_SUBMIT_DIR/"
    rm -rf "$scratch"
    [ -e "$scratch" ] || echo "cleaned up after $code"
}
trap finish EXIT
cd "$scratch"
sort "$SLURM_SUBMIT_DIR/inputs.txt" > result.txt
exit 4
