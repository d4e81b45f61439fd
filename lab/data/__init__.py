"""Data sets: readers of their files, and the batches that each rank trains on."""
