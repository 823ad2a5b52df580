"""How runs are: one snapshot of all jobs, what the jobs themselves report, what both mean, and how a run ended."""
