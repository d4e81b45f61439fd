"""Shared by all programs of the lab: options, exit status, paths."""
