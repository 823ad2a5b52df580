"""The lab: a whole data centre on one machine, for trying things out and for the tests.

What belongs here: starting and stopping the real programs that Isthmus drives (Slurm, Kubernetes) in a private folder,
and breaking them on purpose. What does not: driving them; that is what `engines` is for, and it must not know that a
cluster is a lab.
"""
