"""FastSGD: sparse linear models over links of a given rate, and the codes of keys."""
