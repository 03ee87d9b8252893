"""IR as text: one C subset that is also CUDA C++, and what C and CUDA put around it."""
