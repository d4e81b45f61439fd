"""Which method of training is best on a link: loss against bytes, and against computed time."""
