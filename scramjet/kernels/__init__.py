"""Functions over arrays and tensors that run fast: `cpu` has Numba's, `gpu` Triton's, with the same names where both
exist. They know no policy, no algorithm and no session. Networks reach them through `operations.py`.

Importing this loads neither.
"""

MASKED_LOGIT = -1e9
"""Logit of an illegal action: probability exactly 0 in float32, yet finite, so that entropy and gradients are too."""

MIN_LOG_STD, MAX_LOG_STD = -10.0, 2.0
"""Where the logarithm of a Gaussian's standard deviation is kept: from 5e-5 to 7.4."""
