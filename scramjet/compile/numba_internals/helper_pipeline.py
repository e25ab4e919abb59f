"""A compiler pipeline for helpers: functions that only compiled functions call get no machine code of their own.

Numba makes every function one that Python could call: it is optimized and turned into machine code by itself, and once
more as a part of each function that calls it. For a helper the first is never run, and takes a seventh of the time in
which a world or a learner compiles.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary, RuntimeLinker
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


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
