"""Versions over TCP. `deltawire.live` has what users import."""
