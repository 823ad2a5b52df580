"""A real Kubernetes in one folder, as root, without Docker and without systemd.

- `binaries` finds the programs: in a folder, on PATH, in the cache; else `downloading` or `building` gets them there;
- `cluster.KubernetesLab` is the whole of it: etcd, API server, controllers, scheduler and nodes;
- `control_plane` runs the first four, `nodes` one kubelet with its containerd in namespaces of its own;
- `layout`, `manifests` and `registering` are pure: paths and addresses, configuration files, objects of the API;
- `images` makes the images that pods run, `certificates` the keys by which everybody knows everybody.

Addresses, ports and names follow from a number that the lab claims on this machine, so that several labs live side by
side. What a kubelet changes on the machine (three sysctls, cgroups, mounts) is put back by `down`.
"""
