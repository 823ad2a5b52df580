"""Commands about container images and registries."""
