"""3LC: trainings through a parameter server, and its steps over links of a given rate."""
