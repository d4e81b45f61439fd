"""Tensors whose gradients arrive late, and what becomes of their momentum."""
