"""HTTP: resources in Kubernetes' form, and what Kubernetes has no word for: logs, files, server-sent events.

Belongs here: requests, answers, and who may do what. Does not: what objects mean, how work runs. The API reaches
the rest only through `context.Context`, which the composition root fills.
"""
