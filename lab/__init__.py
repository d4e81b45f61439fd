"""Training experiments: the demo, the links it runs over, and its report."""
