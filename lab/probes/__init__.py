"""Measurements of the library itself: ceilings, pacing, predictions, faults."""
