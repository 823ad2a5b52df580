"""A real Slurm cluster in one folder, from Debian's packages, as root and without systemd.

A node is a network namespace with a name of its own (UTS), joined to the others by a bridge: dynamic nodes must all
listen on the same port, so each needs an address of its own. Everything else (keys, sockets, state, logs, databases)
lies in the folder; addresses, ports and node names follow from a number that the lab claims on this machine, so that
several labs live side by side. `cluster.SlurmLab` is the whole of it.
"""
