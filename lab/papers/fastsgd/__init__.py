"""FastSGD: the paper's tables and figures over links of a given rate, and the codes of keys."""
