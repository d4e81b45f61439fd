"""Patches between real versions of a model, next to what others would send."""
