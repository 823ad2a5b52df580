"""Ways to reach Slurm.

`base` says what is asked of it. `command_line` answers with Slurm's own programs, here or over `ssh`; `rest` with
slurmrestd. `routing` uses each of several for what it does best.
"""
