"""The local engine: runs jobs as processes of the machine that the control plane itself runs on.

```
 control plane          keeper (one per root)      supervisor (one per run)        job
 driver.py ──socket──▶  keeper.py ──fork────────▶  supervising.py ──fork, exec──▶  bubblewrap, the program
     │                                                   │
     └───────── reads ──▶ root/runs/<run id>/ ◀──writes ─┘
```

The control plane may be killed at any moment: keeper and supervisors are processes of their own, and everything
known about a run is in its folder. What belongs here: processes, their limits, isolation, files, logs, devices of
one machine. What does not: which job runs where and when, and anything about tenants beyond an account.

`keeper.py`, `supervising.py` and what they import (`layout`, `processes`, `cgroups`, `networking`, `usage`,
`meter_process`, `log_limits`, `disk_limits`, `engines/metering`, `engines/sampling`) use the standard library only: the
keeper must start fast and stay small. So this module imports nothing; use `isthmus.engines.local.driver`.
"""
