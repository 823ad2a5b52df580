"""The counters themselves."""

from prometheus_client import Counter, Gauge, Histogram

RECONCILES = Counter("isthmus_reconciles_total", "Keys handled, by controller", ["controller"])
RECONCILE_ERRORS = Counter(
    "isthmus_reconcile_errors_total", "Keys whose handling failed, by controller", ["controller"]
)
JOBS_ENDED = Counter("isthmus_jobs_ended_total", "Jobs that reached their end, by phase", ["phase"])
JOBS_WAITING = Gauge("isthmus_jobs_waiting", "Jobs that are ready and wait for a site or for room")
PLACEMENT_SECONDS = Histogram("isthmus_placement_seconds", "Time of one placement pass")
EVENTS_DROPPED = Counter("isthmus_events_dropped_total", "Events not written because there were too many")
KUBERNETES_REQUESTS = Counter(
    "isthmus_kubernetes_requests_total", "What API servers of Kubernetes were asked, as site and as store", ["what"]
)
TASK_FAILURES = Counter(
    "isthmus_task_failures_total", "Background tasks that failed and were started again, by task", ["task"]
)
LOOP_BLOCKED = Counter("isthmus_loop_blocked_total", "Times the event loop did not turn for a second or more")
LOOP_BLOCKED_SECONDS = Counter("isthmus_loop_blocked_seconds_total", "Seconds for which the event loop was blocked")
LEADING = Gauge("isthmus_leading", "1 while this control plane leads")
