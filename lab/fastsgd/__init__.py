"""The tables and figures of FastSGD's paper, run again over links of a given rate."""
