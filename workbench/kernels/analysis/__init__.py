"""What is known about a kernel without running it: where it touches memory, how much it does, what rounding decides."""
