"""Compiled kernels of the GPU on disk, by numba-cuda's own parts; see `kernel_cache` for those of the CPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from scramjet.compile.numba_internals.kernel_cache import FileCache, NotKeptError, Packed

_FROM_THIS_PROCESS = ("signature", "call_helper", "extensions", "codelibrary")
_CODE = ("codegen", "ptx_cache", "cubin_cache", "linkerinfo_cache")


class CudaKernelCache(FileCache):
    """Keeps kernels of the GPU."""

    def __init__(self, fingerprint: str | Callable[[], str], kernel: str, what: str = "functions for the GPU") -> None:
        super().__init__(fingerprint, f"{kernel}-cuda-{version('numba-cuda')}", what)

    def _codegen(self, result: Any) -> Any:
        return result._codelibrary.codegen

    def _make_ready(self, target_context: Any) -> None:
        target_context.refresh()

    def _reduce(self, signature: Any, result: Any) -> Packed:
        kernel = result._reduce_states()
        if kernel["debug"] or kernel["extensions"]:
            raise NotKeptError("it needs Python objects when it runs")
        try:
            library = kernel["codelibrary"]._reduce_states()
        except Exception as error:  # it links files, or holds arrays of this process
            raise NotKeptError(str(error)) from error
        images = library["cubin_cache"]
        header = {
            "kernel": {name: value for name, value in kernel.items() if name not in _FROM_THIS_PROCESS},
            "library": {name: value for name, value in library.items() if name not in _CODE},
            "capabilities": [list(capability) for capability in images],
        }
        return header, [bytes(image.code) for image in images.values()]

    def _rebuild(self, target_context: Any, signature: Any, header: dict[str, Any], parts: list[bytes]) -> Any:
        from numba.cuda import codegen, dispatcher

        cuda: Any = dispatcher  # numba-cuda's, which has more than Numba's own
        images = zip(map(tuple, header["capabilities"]), map(cuda.driver.ObjectCode.from_cubin, parts), strict=True)
        code = {"codegen": None, "ptx_cache": {}, "cubin_cache": dict(images), "linkerinfo_cache": {}}
        arguments, _ = cuda.sigutils.normalize_signature(signature)
        return cuda._Kernel._rebuild(
            signature=cuda.typing.signature(cuda.types.none, *arguments),
            codelibrary=codegen.CUDACodeLibrary._rebuild(**header["library"], **code),
            call_helper=None,  # for errors of kernels that are debugged
            extensions=[],
            **header["kernel"],
        )


def keep_cuda_on_disk(
    dispatcher: Any, fingerprint: str | Callable[[], str], kernel: str, what: str = "functions for the GPU"
) -> None:
    """Have a function that `cuda.jit` made read from disk where its machine code is there, and written where not.

    `fingerprint` names all that decides the code (a function is asked when it is first needed), `kernel` the function;
    `what` is shown to people while it compiles.
    """
    dispatcher._cache = CudaKernelCache(fingerprint, kernel, what)


def quiet_cuda() -> None:
    """Have numba-cuda not warn of kernels with few threads: few envs make small grids."""
    from numba.cuda import dispatcher

    dispatcher.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # type: ignore[attr-defined]
