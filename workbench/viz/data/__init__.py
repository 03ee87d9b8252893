"""From a tape to plain data: what all pictures draw, with every number they show.

`gather` makes the `trace`, `fold` groups its columns, `columns` is the form in which it travels to a page, `snapshot`
tells what an array held. Imports the tape's side of the house; knows no mark and no colour.
"""
