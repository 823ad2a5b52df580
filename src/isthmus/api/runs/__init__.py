"""What runs of a job leave and show: logs, metrics, outputs; and plans for jobs that were not submitted."""
