"""Live weights behind slow links, with faults: `python -m lab.probes.live_weights`."""
