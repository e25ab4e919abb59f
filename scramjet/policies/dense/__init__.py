"""Linear layers on the GPU, and rows that are scaled: Triton kernels that launch once where torch launches often."""
