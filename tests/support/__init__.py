"""What several files of tests share: backends, kernels, programs, samples for views, and stand-ins for a GPU."""
