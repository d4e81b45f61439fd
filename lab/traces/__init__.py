"""Recordings of real gradients: small programs that train and record (docs/reference/traces.md)."""
