"""The interpreter: what IR means, statement by statement."""
