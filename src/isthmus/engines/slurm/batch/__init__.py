"""What is sent to Slurm: the submission, the batch script, and the sampler that runs beside the program."""
