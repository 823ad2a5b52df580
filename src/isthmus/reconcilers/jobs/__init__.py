"""Jobs: from accepted to ended.

`reconciler` takes the steps; `lifecycle`, `dependencies` and `arrays` decide; `runs` and `inputs` say what an engine is
given; `job_index` knows what must be known of all jobs together. Where a job goes is decided in `placement`.
"""
