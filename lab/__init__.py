"""Training experiments: the demo, papers run again, probes, and what they share."""
