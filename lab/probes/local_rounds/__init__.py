"""Methods of local steps compared on one language model at equal tokens, with bytes as sent."""
