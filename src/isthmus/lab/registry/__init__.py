"""A registry of container images: Debian's docker-registry, with TLS, an account, and a small image in it.

It needs no root and no network of its own: one process that listens on this machine only.
"""
