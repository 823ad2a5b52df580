#!/bin/sh
#SBATCH --export=NONE,FOO=1,GREETING=hello
#SBATCH -o export.out -J export

echo "$FOO, $GREETING, ${OF_THE_SHELL-nothing of the shell}"
