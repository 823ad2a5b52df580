#!/bin/bash
#SBATCH -J killed -o killed.out
echo before
kill -TERM $$
sleep 5
