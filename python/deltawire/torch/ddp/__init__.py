"""Compressed gradients of a DistributedDataParallel model."""
