"""Starts ranks as processes of this machine, over real, shaped or no links."""
