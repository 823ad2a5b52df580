#!/bin/bash
#SBATCH -J append --open-mode=append -o old.log
echo "behind what was there"
