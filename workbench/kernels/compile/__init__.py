"""Text to machine code: the C compiler, NVRTC, their caches on disk, the pool of threads."""
