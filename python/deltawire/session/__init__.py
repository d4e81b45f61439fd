"""The session of NumPy arrays, and what all that join a job share. `deltawire` has `Session`."""
