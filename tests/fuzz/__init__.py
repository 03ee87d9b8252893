"""Generators of random programs with their oracles: a handful runs as tests, thousands by hand with
`python -m tests.fuzz.NAME --programs N --seed S`, where NAME is the file."""
