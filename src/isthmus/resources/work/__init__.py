"""What jobs, and kinds made of jobs, share: arrays, attempts, plans, expressions, file trees, accounts of runs.

A kind is not declared here; each has its module in the folder above.
"""
