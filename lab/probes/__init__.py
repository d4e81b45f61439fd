"""Measurements of our own: ceilings, pacing, predictions, faults."""
