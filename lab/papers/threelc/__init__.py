"""3LC: tables 1 and 2 with a parameter server, over links of a given rate."""
