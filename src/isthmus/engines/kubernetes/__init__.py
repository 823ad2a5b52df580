"""The Kubernetes engine: each run is one pod, watched over by a batch/v1 Job of the same name.

- `driver` is the contract, put together from the parts below;
- `executing` runs small programs in pods; all else goes through the client in `isthmus.kubernetes`;
- `pod_watching` keeps one list and one watch of all pods of the site, `logs` copies what pods print, `staging` brings
  files in and out, `sampling` writes down what runs use, `settling` finds out how a run ended and writes it down;
- `pods`, `wrapping`, `parsing` and `inventories` are pure.

Beside the engine, `exposing` shows the nodes of other sites as Nodes of a cluster: `exposed_nodes` decides (pure),
`heartbeats` renews their Leases, `lease_writes` makes that cheap.

**Exactly once.** A pod is created under a name that follows from the run's id; where the name is taken, the pod is
adopted if it carries our labels, and never touched otherwise. A pod is never started again by anybody: its Job holds a
template that no scheduler takes, so a pod that is deleted or lost with its node has no successor that runs.
The Job is the record: how the run ended is an annotation of it. Logs are copied to this side as they are written.
"""
