"""LSTM, GRU and MinGRU on the GPU: Triton kernels that take a block of rows through all steps and back."""
