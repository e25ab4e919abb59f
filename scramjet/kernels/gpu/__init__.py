"""Triton kernels, and a few of numba-cuda, with what launches them. Loaded only where tensors are on a GPU."""
