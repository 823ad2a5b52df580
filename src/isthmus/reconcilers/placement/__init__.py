"""Placement: which waiting job goes to which site.

`placing` is the loop; `planning` asks for a plan for jobs with deadlines; `surveying` describes the present situation;
`profiling` remembers what past runs took. The decisions themselves are in `scheduling`, which is pure.
"""
