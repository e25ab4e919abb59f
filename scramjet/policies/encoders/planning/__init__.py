"""Planning on grids on the GPU: the kernels of `value_propagation`, and those before and after it."""
