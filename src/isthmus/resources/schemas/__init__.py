"""Schemas made from the models: JSON Schema, the structural form that Kubernetes reads, and CRDs with their rules."""
