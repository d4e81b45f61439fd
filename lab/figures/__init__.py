"""The style of all figures, and the placement of their legends."""
