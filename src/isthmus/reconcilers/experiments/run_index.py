"""Which jobs are runs of which experiment, kept up by the informer of jobs; all of it can be made again from them."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.resources.experiments import EXPERIMENT_LABEL
from isthmus.resources.kinds import EXPERIMENT
from isthmus.store.base import Key, Record

from .comparing import RunResult, run_of_job


class ExperimentIndex:
    """The runs of every experiment, and a word to whoever looks after it when one changes."""

    def __init__(self, look: Callable[[Key], None]) -> None:
        self._look = look
        self._runs: dict[str, dict[Key, RunResult]] = {}
        self._active: dict[str, set[Key]] = {}
        self._owners: dict[Key, str] = {}

    def runs(self, uid: str) -> list[RunResult]:
        """Every run of an experiment that there is."""
        return list(self._runs.get(uid, {}).values())

    def run(self, key: Key) -> RunResult | None:
        """The run that a job is."""
        return self._runs.get(self._owners.get(key, ""), {}).get(key)

    def active(self, uid: str) -> set[Key]:
        """The jobs of an experiment that have not ended."""
        return set(self._active.get(uid, ()))

    def job_changed(self, old: Record | None, new: Record | None) -> None:
        """The informer's handler for jobs. Almost all jobs are no runs, and cost a look at their labels."""
        if old is not None and (new is None or new.uid != old.uid):
            self._drop(old)
        if new is None or EXPERIMENT_LABEL not in (new.obj["metadata"].get("labels") or {}):
            return
        owner = next(
            (o for o in new.obj["metadata"].get("ownerReferences") or () if o["kind"] == EXPERIMENT.name), None
        )
        run = run_of_job(new.obj) if owner else None
        if owner is None or run is None:
            return
        uid = owner["uid"]
        before = self._runs.setdefault(uid, {}).get(new.key)
        self._owners[new.key] = uid
        self._runs[uid][new.key] = run
        active = self._active.setdefault(uid, set())
        (active.discard if run.phase.terminal else active.add)(new.key)
        if before != run:
            self._look(Key(EXPERIMENT.name, new.key.namespace, owner["name"]))

    def _drop(self, record: Record) -> None:
        uid = self._owners.pop(record.key, None)
        if uid is None:
            return
        self._runs.get(uid, {}).pop(record.key, None)
        self._active.get(uid, set()).discard(record.key)
        if not self._runs.get(uid):
            self._runs.pop(uid, None)
            self._active.pop(uid, None)
        owners = record.obj["metadata"].get("ownerReferences") or ()
        for owner in (o for o in owners if o["kind"] == EXPERIMENT.name):
            self._look(Key(EXPERIMENT.name, record.key.namespace, owner["name"]))
