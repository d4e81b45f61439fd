"""Sparse binary compression (SBC): its federated table, and the bits of positions."""
