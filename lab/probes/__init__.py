"""Measurements of the library itself: local rounds, their frontier, faults."""
