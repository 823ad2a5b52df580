"""Slurm's accounting: looking for runs in it, reading it when it is late, sharing the energy of nodes among jobs."""
