"""What Slurm says of the cluster itself: nodes, partitions, and how long a job would wait in them."""
