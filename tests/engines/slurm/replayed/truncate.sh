#!/bin/bash
#SBATCH -J truncate --open-mode=truncate -o old.log -e old.log
echo "in place of what was there"
echo "also in order" >&2
