"""Measures of how new an observation is: tensors in, tensors out."""
