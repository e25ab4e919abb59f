"""Settings of threads, memory and the GPU that training wants."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from scramjet.errors import TrainingError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
_KEEP_BELOW_BYTES = 1 << 30


def set_threads(num_threads: int) -> None:
    """Let torch and the compiled kernels use `num_threads` CPU threads each; they take turns, so they do not fight."""
    import numba
    import torch

    most = int(vars(numba.config)["NUMBA_NUM_THREADS"])  # fixed when numba was loaded
    numba.set_num_threads(min(num_threads, most))  # before torch is told: where it starts numba's, torch's are reset
    torch.set_num_threads(num_threads)


def leave_compiler_unloaded() -> None:
    """Spare the two seconds that it takes to load torch's compiler, which nobody here uses.

    Methods of optimizers tell it not to look at them when they are first called, and load it for that.
    """
    import torch

    if "torch._dynamo" in sys.modules:
        return
    for method in vars(torch.optim.Optimizer).values():
        plain = getattr(method, "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            plain.__dynamo_disable = plain


def keep_freed_memory() -> None:
    """Have malloc keep what is freed instead of giving it back to the system.

    An update frees and takes the same activations again and again; as fresh pages from the system they cost a fault
    for every 4 KiB, which at 4096 envs halves the speed of the whole training. Only glibc's malloc is told.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, _KEEP_BELOW_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _KEEP_BELOW_BYTES - 1)


def set_precision(precision: str) -> None:
    """Set how torch multiplies float32 matrices on the GPU, and make convolutions add up in a fixed order."""
    import torch

    torch.backends.cudnn.deterministic = True  # or a resumed run would differ in its last digits
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "float32"


@contextmanager
def memory_errors_explained() -> Iterator[None]:
    """A context that turns an error about full GPU memory into one that says which settings to lower."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if "out of memory" not in text.lower() and "OUT_OF_MEMORY" not in text:
            raise
        raise TrainingError(
            "the GPU's memory is full; lower --num-envs or --num-steps, raise --num-minibatches, or use a smaller "
            "network. What was saved is kept"
        ) from error


def describe_gpu() -> str:
    """The GPU's name and the versions of CUDA, torch and numba-cuda, as one line."""
    from importlib.metadata import PackageNotFoundError, version

    import torch

    try:
        compiler = f", numba-cuda {version('numba-cuda')}"
    except PackageNotFoundError:
        compiler = ""
    name = torch.cuda.get_device_name()
    return f"{name}, CUDA {torch.version.cuda}, torch {torch.__version__}{compiler}"
