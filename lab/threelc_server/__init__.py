"""3LC's parameter server over slow links: time and traffic of a step, beside `direct`."""
