"""register(model, "auto"): measures steps, plans, and picks a codec while it trains."""
