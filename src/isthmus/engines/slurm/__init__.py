"""The Slurm engine: jobs of a Slurm cluster, reached in one of three ways.

- `driver` is the contract, put together from the parts below; `reading` is the part that only reads; `opening` makes
  both from `settings`;
- `transports` reach Slurm, `files` the cluster's file system; `facts` and `states` are what Slurm says, as data;
- `batch` makes what is sent to Slurm: the submission and the script;
- `observing` keeps one snapshot of all jobs, fed by one query per interval, and finds out how runs end; `accounting`
  asks Slurm's accounting about them;
- `cluster` makes an inventory of nodes and partitions.

**Exactly once.** A run has a *record* in the site's folder, made before anything is sent. Slurm keeps the run's id in
the job's comment. After a crash or a lost reply the record is there and has no job id: then Slurm and its accounting
are searched for the comment before anything is sent again. What slips through all the same (a request that was still on
its way) is stopped by the batch script: the first job that begins a run leaves its mark, and a second one does nothing.
"""
