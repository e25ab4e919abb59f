"""Numba kernels: loops that LLVM compiles for the processor at hand, most of them called by their addresses."""
