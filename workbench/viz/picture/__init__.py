"""The static picture: `layout` places a trace, `scene` turns it into marks, `svg` and `table` write them.

Imports `viz.data`. What a mark looks like is decided here, once, for the live view too.
"""
