"""How many kernels that others wrote for NVIDIA Warp are read, differentiated and compiled here: see `__main__`."""
