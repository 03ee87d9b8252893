"""Memory, and the names for it.

An `allocation` owns bytes and tells who listens before they change; a `span` is the part of it that an `array`
occupies; a `workspace` holds the shadows of one reverse walk, indexed like the memory. Imports the compiler's types and
`device`; knows no launch and no tape (a tape listens). To add a way of making arrays: `creation`; of reading values of
the host: `host_values`.
"""
