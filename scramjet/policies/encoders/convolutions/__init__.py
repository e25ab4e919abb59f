"""Convolutions of boards and images on the GPU, in Triton kernels: products that gather their rows as they go."""
