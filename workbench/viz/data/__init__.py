"""From a tape to plain data: what all pictures draw."""
