"""Speaking to the API server of a Kubernetes cluster, for everybody who does: the store, the engine, the installer.

- `kubeconfigs` says where a cluster is and who we are there, `credentials` are what we show it;
- `client` makes requests, `connecting` minds their connections, `answers` says what an answer means.

Belongs here: what is true of every request. Does not: what is asked for, and what is concluded from it.
"""
