"""Compressed gradients between the replicas of a model that fully_shard has cut."""
