"""Launches: arguments, plans, and running a kernel or its adjoint once."""
