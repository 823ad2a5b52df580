"""Commands about jobs: run, submit, plan, list, follow, cancel, outputs."""
