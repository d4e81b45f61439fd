"""What all figures share: their style, and where their legends go."""
