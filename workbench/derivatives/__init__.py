"""What is built from walks over tapes: Jacobians, checks, sweeps."""
