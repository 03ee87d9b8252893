"""Memory and the names for it."""
