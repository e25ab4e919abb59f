"""Linear layers on the GPU: Triton kernels that add the bias, apply the nonlinearity and sum where they compute."""
