"""Numba kernels on the GPU: what they need, how they are launched on torch's current stream, how they see tensors."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable
from functools import cache
from typing import Any

from scramjet.errors import ConfigError

THREADS_PER_BLOCK = 128
"""The most threads of a block where each does one row."""
WARP = 32
BLOCKS_PER_MULTIPROCESSOR = 4
"""With few rows, blocks are made smaller until there are about so many for each multiprocessor: all of them work."""


def require_cuda() -> Any:
    """Numba's CUDA module, or an error that says what is missing."""
    import torch

    if torch.version.cuda is None:
        raise ConfigError(
            f"device='cuda' needs a torch that was built for CUDA, and torch {torch.__version__} was not; install one "
            f"as pytorch.org says, or use --device cpu"
        )
    if not torch.cuda.is_available():
        raise ConfigError(
            "device='cuda' needs an NVIDIA GPU and its driver, and CUDA finds none; see what `nvidia-smi` says, or use "
            "--device cpu"
        )
    if importlib.util.find_spec("numba_cuda") is None:
        raise ConfigError(
            "device='cuda' needs numba-cuda, which compiles worlds for the GPU and is not installed; run "
            "pip install 'scramjet[cuda]', or use --device cpu"
        )
    try:
        cuda = numba_cuda()
        has_gpu = cuda.is_available()
    except Exception as error:
        raise ConfigError(
            f"device='cuda' needs numba-cuda, and it does not load ({error}); run pip install -U 'scramjet[cuda]', or "
            f"use --device cpu"
        ) from error
    if not has_gpu:
        raise ConfigError(
            "device='cuda': torch finds the GPU, and numba-cuda does not; run `numba -s` to see what it lacks, or use "
            "--device cpu"
        )
    return cuda


def cuda_is_ready() -> bool:
    """Whether there is a GPU, and all that compiles worlds for it."""
    try:
        require_cuda()
    except ConfigError:
        return False
    return True


@cache
def numba_cuda() -> Any:
    """Numba's CUDA module, with warnings off about what we do on purpose."""
    from numba import cuda

    from scramjet.compile.numba_internals import quiet_cuda

    quiet_cuda()
    # Records in shared memory are those of global memory with room behind them: the same functions serve both.
    warnings.filterwarnings("ignore", ".*considered a subtype.*")
    return cuda


def launch(
    kernel: Any, num_rows: int, *arguments: Any, block: int | tuple[int, int] | None = None, shared_bytes: int = 0
) -> None:
    """Run a kernel for so many rows on torch's current stream; it gets their number first.

    `block`: rows of a block with a thread for each, or threads for each row (x) and rows of a block (y); None: as
    `block_size` says.
    """
    import torch

    cuda = numba_cuda()
    if block is None:
        block = block_size(num_rows, WARP, THREADS_PER_BLOCK)
    rows = block if isinstance(block, int) else block[1]
    stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
    kernel[-(-num_rows // rows), block, stream, shared_bytes](num_rows, *arguments)


def block_size(num_rows: int, least: int, most: int, multiprocessors: int | None = None) -> int:
    """How many of `num_rows` rows a block takes: at least `least`, doubled until there are no more blocks than
    BLOCKS_PER_MULTIPROCESSOR for each, and at most `most`."""
    num_blocks = BLOCKS_PER_MULTIPROCESSOR * (multiprocessors or _multiprocessors())
    size = least
    while size < most and -(-num_rows // size) > num_blocks:
        size *= 2
    return min(size, most)


@cache
def _multiprocessors() -> int:
    import torch

    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def cuda_arrays(arguments: Iterable[Any]) -> list[Any]:
    """Tensors as Numba's kernels take them; anything else as it is."""
    cuda = numba_cuda()
    return [cuda.as_cuda_array(a.detach()) if hasattr(a, "is_cuda") else a for a in arguments]


class _Bytes:
    """Records on the GPU as rows of bytes, for CUDA's array interface."""

    def __init__(self, records: Any) -> None:
        self._keeps_alive = records
        address, _ = records.__cuda_array_interface__["data"]
        shape = (len(records), records.dtype.itemsize)
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "|u1", "data": (address, False), "version": 2}


def bytes_of(records: Any) -> Any:
    """A tensor [N, record size] over an array of records on the GPU."""
    import torch

    return torch.as_tensor(_Bytes(records), device="cuda")
