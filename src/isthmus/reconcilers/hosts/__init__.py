"""Hosts: what to do about a machine's power (`powering`, pure), and the reconciler that does it."""
