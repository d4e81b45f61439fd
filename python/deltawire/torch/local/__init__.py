"""Infrequent synchronization: rounds of local steps that exchange weight changes."""
