"""Derivative tools built on walks over tapes: Jacobians, gradient checks, sweeps, mistakes made on purpose.

Imports `tapes` and below, and changes no gradient of the user's. To add a product of derivatives: a file beside
`jacobian`; to add a check: `verify`, whose `Report` it fills; to add a mistake for teaching: `pitfalls`.
"""
