"""The mathematics: tensors in, tensors out, no input or output."""
