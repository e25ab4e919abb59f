"""The hardware: how many threads torch and the compiled worlds use."""

from __future__ import annotations


def set_threads(num_threads: int) -> None:
    """Let torch and the compiled kernels use `num_threads` CPU threads each; they take turns, so they do not fight."""
    import numba
    import torch

    torch.set_num_threads(num_threads)
    most = int(vars(numba.config)["NUMBA_NUM_THREADS"])  # fixed when numba was loaded
    numba.set_num_threads(min(num_threads, most))
