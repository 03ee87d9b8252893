"""The static picture: `window` places events along time, `scene` and `tracks` draw, `svg` and `table` write.

Rows and marks are those of `viz.data.columns`, from which the live view draws too. Imports `viz.data`.
"""
