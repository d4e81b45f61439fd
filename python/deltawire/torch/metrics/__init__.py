"""What an exchange costs, as tables, scalars, timelines and recordings."""
