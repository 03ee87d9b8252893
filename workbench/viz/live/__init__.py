"""The live views: widgets in Python, their pages in small JavaScript files that are joined into one module.

`view` answers what the page asks; `offline` puts the same page into one file. Imports everything else of `viz`.
"""
