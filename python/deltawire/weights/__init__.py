"""Weights that change: lossless patches, and versions of a model in a store and over TCP."""
