"""Runs in container images at a Slurm site: what runs them, where they are unpacked, the lines that start them."""
