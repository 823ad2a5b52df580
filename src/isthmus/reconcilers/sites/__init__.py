"""Sites: their engines, their inventory, and their nodes shown in a Kubernetes cluster.

`registry` holds the engines that are open; only jobs submit work to them.
"""
