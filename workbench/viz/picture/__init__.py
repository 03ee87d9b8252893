"""Static pictures."""
