"""Text to machine code: the C compiler and NVRTC, a cache on disk, the pool of threads.

Knows texts and names of functions, no IR. Imports `config`, and of `emit` the name of one helper. To add a compiler: a
file that turns a text into something with the call of `c_library`, built through `disk_cache`.
What only a compilation needs (`subprocess`, `tempfile`, ...) is imported inside it: `import workbench` does not wait.
"""
