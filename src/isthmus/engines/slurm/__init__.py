"""The Slurm engine: jobs of a Slurm cluster, reached in one of three ways.

- `driver` is the contract, put together from the parts below;
- `controllers` says what is asked of Slurm; `command_line` (here or over `ssh`) and `rest` each answer it;
- `files` says what is asked of the cluster's file system; `shared_files` and `remote_files` each answer it;
- `watching` keeps one picture of all jobs, fed by one query per interval, that every reader looks at;
- `states`, `parsing`, `submissions`, `scripts`, `observing`, `partitions` and `sharing` are pure.

**Exactly once.** A run has a *record* in the site's folder, made before anything is sent. Slurm keeps the run's id in
the job's comment. After a crash or a lost reply the record is there and has no job id: then Slurm, and its books, are
searched for the comment before anything is sent again. What slips through all the same (a request that was still on
its way) is stopped by the batch script: the first job that begins a run leaves its mark, and a second one does nothing.
"""
