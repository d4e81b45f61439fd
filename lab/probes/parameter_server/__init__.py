"""Training with a parameter server under AdamW."""
