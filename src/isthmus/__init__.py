"""Isthmus: one control plane for every machine an institute owns."""
