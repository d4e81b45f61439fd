"""Sparse binary compression (SBC): federated rounds, and the bits of positions."""
