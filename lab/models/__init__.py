"""Networks, how they are trained, and their accuracy on held-out data."""
