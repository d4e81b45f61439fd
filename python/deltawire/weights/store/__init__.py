"""Versions of a model in files. `deltawire.weight_store` has what users import."""
