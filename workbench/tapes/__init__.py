"""Tapes: recordings of events, and what is done by walking them."""
