"""Gradients on a device: who codes them, and where their values go."""
