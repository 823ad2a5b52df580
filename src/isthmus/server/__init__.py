"""The composition root: the only place that wires drivers, and (with the command line) that reads the environment."""
