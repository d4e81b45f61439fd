"""A Flower app with deltawire's two lines."""
