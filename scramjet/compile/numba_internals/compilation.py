"""How Numba compiles for us: helpers get no machine code of their own, and kernels are kept on disk.

A second start does not compile again. An entry on disk is named by a fingerprint of everything the code depends on, so
it is never stale; it is written aside and renamed, so several processes may start at once; it carries its own hash, so
a damaged one is compiled anew. Numba's own cache looks at one source file's time stamp and would miss a changed helper
module. It also keeps pickles; ours keeps machine code with names and sizes, and takes types and classes from the
process that loads it.
"""

from __future__ import annotations

import hashlib
import warnings
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core import compiler, sigutils, typing
from numba.core.caching import _Cache
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary, RuntimeLinker
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.environment import Environment, lookup_environment
from numba.core.funcdesc import PythonFunctionDescriptor
from numba.core.runtime import rtsys
from numba.core.typed_passes import NativeLowering, _reload_parfors

from scramjet.compile import progress as compiling
from scramjet.compile.cache_folder import (
    entry_directory,
    entry_lock,
    kernel_path,
    pack,
    read_kernel,
    remove_entry,
    unpack,
    write_kernel,
)
from scramjet.runtime.private_files import NotPrivateError

# --- The pipeline for helpers: functions that only compiled functions call
#
# Numba makes every function one that Python could call: it is optimized and turned into machine code by itself, and
# once more as a part of each function that calls it. For a helper the first is never run, and takes a seventh of the
# time in which a world or a learner compiles.


class _LinkedLibrary(JITCodeLibrary):
    """The code of a helper: it is linked into each function that calls it and optimized there."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


def calls_by_address(library: Any) -> bool:
    """Whether functions of a library call each other in a circle: they do so by addresses of this process."""
    return any(variable.name.startswith(RuntimeLinker.PREFIX) for variable in library._final_module.global_variables)


def _is_in_a_circle(called: Any) -> bool:
    if isinstance(called, types.Dispatcher):
        return any(calls_by_address(result.library) for result in called.dispatcher.overloads.values())
    return isinstance(called, types.RecursiveCall)


@register_pass(mutates_CFG=True, analysis_only=False)
class _LinkedLowering(NativeLowering):
    """Translates a typed function to LLVM's code and stops there: no machine code is made."""

    _name = "linked_lowering"

    def run_pass(self, state: Any) -> bool:
        if any(_is_in_a_circle(kind) for kind in state.typemap.values()):
            return bool(super().run_pass(state))  # there must be an address, then
        library = state.library = _LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        library.enable_object_caching()
        state.flags.no_compile = True
        super().run_pass(state)
        # Numba finds a compiled function by the Python object that would call its machine code; this one calls none.
        lowered = state["cr"]
        name = lowered.fndesc.qualname.rpartition(".")[2]
        handle = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, name, 0, lowered.env, (library,))
        state.targetctx.insert_user_function(handle, lowered.fndesc, [library])
        state["cr"] = lowered._replace(cfunc=handle)
        return True


class HelperCompiler(CompilerBase):
    """The pipeline for helpers: `njit(pipeline_class=HelperCompiler)`."""

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [
            (_LinkedLowering if compiler_pass is NativeLowering else compiler_pass, purpose)
            for compiler_pass, purpose in manager.passes
        ]
        manager.finalize()
        return [manager]


# Numba writes an entrance for Python and one for C into every function: for helpers, a fifth of their compilation.
# A function takes over from its caller whether references are counted, unless it is told.
ENTRY_OPTIONS: dict[str, Any] = {"no_cfunc_wrapper": True, "_nrt": True}
"""Options of `njit` for functions that Python calls."""
HELPER_OPTIONS: dict[str, Any] = {**ENTRY_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": HelperCompiler}
"""Options of `njit` for functions that only compiled ones call."""
INLINED_HELPER_OPTIONS: dict[str, Any] = {**HELPER_OPTIONS, "forceinline": True}
"""Options of `njit` for helpers that become a part of each function that calls them."""
BORROWING_HELPER_OPTIONS: dict[str, Any] = {**INLINED_HELPER_OPTIONS, "_nrt": False}
"""Options of `njit` for such helpers that keep and return none of their arrays: references are not counted."""


# --- Kernels of the CPU on disk


Packed = tuple[dict[str, Any], list[bytes]]
"""What a kernel's file holds: plain values, and machine code."""


_TOLD: set[Path] = set()


def _tell_not_kept(folder: Path, error: OSError) -> None:
    """Once for a folder: each of many kernels meets the same."""
    if folder in _TOLD:
        return
    _TOLD.add(folder)
    fix = "set SCRAMJET_CACHE_DIR to a folder that you alone can write to"
    if isinstance(error, NotPrivateError) and error.fix:
        fix = f"{error.fix}, or {fix}"
    reason = error.strerror or str(error)
    warnings.warn(
        f"compiled kernels are not kept in {folder}: {reason}; {fix}. Until then each start compiles anew", stacklevel=2
    )


class NotKeptError(Exception):
    """A kernel that another process could not use."""


class FileCache(_Cache):
    """What Numba asks before it compiles one kernel, and tells after."""

    def __init__(
        self, fingerprint: str | Callable[[], str], kernel: str, what: str = "functions for acting and learning"
    ) -> None:
        """A function is asked for the fingerprint when it is first needed; `what` is told while it is compiled."""
        self._fingerprint = fingerprint
        self.kernel = kernel
        self.what = what
        self._enabled = True

    @cached_property
    def directory(self) -> Path:
        """Where this kernel is kept, for each of its signatures."""
        fingerprint = self._fingerprint if isinstance(self._fingerprint, str) else self._fingerprint()
        return entry_directory(fingerprint)

    @property
    def cache_path(self) -> str:
        return str(self.directory)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled kernel for these argument types; None where there is none, and Numba compiles it next."""
        loaded = self._load(signature, target_context) if self._enabled else None
        if loaded is None:
            compiling.begin(self.what)  # until `save_overload`
        return loaded

    def _load(self, signature: Any, target_context: Any) -> Any:
        try:
            header, parts = unpack(read_kernel(self._path(signature, target_context.codegen())))
            self._make_ready(target_context)
            return self._rebuild(target_context, signature, header, parts)
        except Exception:  # none there, or not ours, or by an environment that differs in what no fingerprint sees
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a freshly compiled kernel; a disk that cannot be written only costs the next start its time."""
        compiling.end()
        if not self._enabled:
            return
        try:
            content = pack(*self._reduce(signature, result))
            write_kernel(self._path(signature, self._codegen(result)), content)
        except OSError as error:
            _tell_not_kept(self.directory.parent, error)
        except (NotKeptError, TypeError, LookupError, AttributeError):  # the last: a newer Numba keeps other things
            pass

    def _path(self, signature: Any, codegen: Any) -> Path:
        key = hashlib.sha256(repr((signature, codegen.magic_tuple())).encode()).hexdigest()
        return kernel_path(self.directory, f"{self.kernel}-{key[:16]}")

    @abstractmethod
    def _codegen(self, result: Any) -> Any:
        """What wrote the kernel's code; it knows for which machine."""

    @abstractmethod
    def _make_ready(self, target_context: Any) -> None:
        """Load what machine code needs to run."""

    @abstractmethod
    def _reduce(self, signature: Any, result: Any) -> Packed:
        """What to write of a compiled kernel; NotKeptError where another process could not use it."""

    @abstractmethod
    def _rebuild(self, target_context: Any, signature: Any, header: dict[str, Any], parts: list[bytes]) -> Any:
        """The compiled kernel for these argument types, from what `_reduce` gave."""

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        remove_entry(self.directory)


_RESULTS = {str(kind): kind for kind in (types.none, types.boolean, *types.integer_domain, *types.real_domain)}
"""What a kernel that is kept may return, by its name."""


class KernelCache(FileCache):
    """Keeps kernels of the CPU."""

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a freshly compiled kernel, and have the helpers in it print and raise as they would by themselves."""
        result.library._ensure_finalized()
        for environment in result._find_referenced_environments():
            result.library.codegen.set_env(environment.env_name, environment)
        super().save_overload(signature, result)

    def _codegen(self, result: Any) -> Any:
        return result.library.codegen

    def _make_ready(self, target_context: Any) -> None:
        """All that the compiler knows of Python stays unloaded: it takes long."""
        rtsys.initialize(target_context)

    def _reduce(self, signature: Any, result: Any) -> Packed:
        described, library = result.fndesc, result.library
        if library.has_dynamic_globals or calls_by_address(library):
            raise NotKeptError("addresses of this process are in it")
        arguments, _ = sigutils.normalize_signature(signature)
        is_usual = not result.objectmode and not result.lifted and described.argtypes == arguments
        if not is_usual or str(described.restype) not in _RESULTS or set(result.reload_init) - {_reload_parfors}:
            raise NotKeptError("it needs more than its machine code")
        name, _, code = library.serialize_using_object_code()
        header = {
            "library": name,
            "qualname": described.qualname,
            "symbol": described.mangled_name,
            "environment": described.env_name,
            "arguments": list(described.args),
            "result": str(described.restype),
            "inline": described.inline,
            "noalias": described.noalias,
            "threads": bool(result.reload_init),
            "environments": {one.env_name: _dtypes(one.consts) for one in result._find_referenced_environments()},
        }
        return header, list(code)

    def _rebuild(self, target_context: Any, signature: Any, header: dict[str, Any], parts: list[bytes]) -> Any:
        arguments, _ = sigutils.normalize_signature(signature)
        described = PythonFunctionDescriptor(
            native=True,
            modname=__name__,  # one that is always there: where the function was written does not matter any more
            qualname=header["qualname"],
            unique_name=header["qualname"],
            doc="",
            typemap=None,
            restype=_RESULTS[header["result"]],
            calltypes=None,
            args=tuple(header["arguments"]),
            kws=(),
            mangler=lambda *_, **__: header["symbol"],
            argtypes=tuple(arguments),
            inline=header["inline"],
            noalias=header["noalias"],
            env_name=header["environment"],
        )
        environments = {name: _environment(name, dtypes) for name, dtypes in header["environments"].items()}
        return compiler.CompileResult._rebuild(
            target_context,
            libdata=(header["library"], "object", parts),
            fndesc=described,
            env=environments.get(described.env_name) or _environment(described.env_name, []),
            signature=typing.signature(described.restype, *described.argtypes),
            objectmode=False,
            lifted=(),
            typeann="",
            reload_init=[_reload_parfors] if header["threads"] else [],
            referenced_envs=tuple(environments.values()),
        )


def _dtypes(constants: list[Any]) -> list[str]:
    """Python objects that a function needs when it runs: to print an array, its dtype."""
    if not all(isinstance(one, np.dtype) and one.isbuiltin == 1 for one in constants):
        raise NotKeptError("it uses other Python objects")
    return [one.str for one in constants]


def _environment(name: str, dtypes: list[str]) -> Any:
    """The Python objects of a function, in the one place that Numba has for them."""
    known = lookup_environment(name)
    if known is not None:
        return known
    made = Environment({"__name__": __name__})  # Numba takes one without a name for one that cannot be kept
    made.consts[:] = [np.dtype(text) for text in dtypes]
    made.env_name = name
    Environment._memo[name] = made
    return made


def keep_on_disk(
    dispatcher: Any,
    fingerprint: str | Callable[[], str],
    kernel: str,
    what: str = "functions for acting and learning",
) -> None:
    """Have a function that `njit` made read from disk where its machine code is there, and written there where not.

    `fingerprint` names all that decides the code (a function is asked when it is first needed), `kernel` the function;
    `what` is shown to people while it compiles.
    """
    dispatcher._cache = KernelCache(fingerprint, kernel, what)


def c_function(function: FunctionType, fingerprint: str) -> Any:
    """A function of int64 numbers that returns nothing as a C function, read from disk or compiled; has `address`."""
    signature = sigutils.normalize_signature(types.void(*[types.int64] * function.__code__.co_argcount))
    made: Any = CFunc(function, signature, locals={}, options={"nopython": True, "error_model": "numpy"})
    made._cache = KernelCache(fingerprint, function.__name__)
    with compiling.compilation(made._cache.what), entry_lock(made._cache.directory):  # another process may compile it
        made.compile()
    return made


# --- Kernels of the GPU on disk, by numba-cuda's own parts


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
