"""Elastic sessions under random faults (`python -m lab.probes.elastic_soak --help`)."""
