"""Experiments of the papers that deltawire implements, run again."""
