"""The demo: a real network trained over a thin link, once per method (python -m lab.demo)."""
