"""Helpers of compiled functions, without machine code of their own.

Numba makes every function one that Python could call: it is optimized and turned into machine code for itself, and once
more as a part of each function that calls it. For a helper that only compiled code calls, the first is never run, and
takes a seventh of the time in which a world or a learner compiles.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary, RuntimeLinker
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _LinkedLibrary(JITCodeLibrary):
    """A helper's code, to be put into the code of those that call it and optimized there."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


def calls_by_address(library: Any) -> bool:
    """Whether functions in it call each other in a circle: they find each other by addresses in this process."""
    return any(variable.name.startswith(RuntimeLinker.PREFIX) for variable in library._final_module.global_variables)


def _is_in_a_circle(called: Any) -> bool:
    if isinstance(called, types.Dispatcher):
        return any(calls_by_address(result.library) for result in called.dispatcher.overloads.values())
    return isinstance(called, types.RecursiveCall)


@register_pass(mutates_CFG=True, analysis_only=False)
class _LinkedLowering(NativeLowering):
    """From types to LLVM's code, and no further."""

    _name = "linked_lowering"

    def run_pass(self, state: Any) -> bool:
        if any(_is_in_a_circle(kind) for kind in state.typemap.values()):
            return bool(super().run_pass(state))  # there must be an address, then
        library = state.library = _LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        library.enable_object_caching()
        state.flags.no_compile = True
        super().run_pass(state)
        # Numba knows a function by what Python would call, at some address: there is none.
        lowered = state["cr"]
        name = lowered.fndesc.qualname.rpartition(".")[2]
        handle = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, name, 0, lowered.env, (library,))
        state.targetctx.insert_user_function(handle, lowered.fndesc, [library])
        state["cr"] = lowered._replace(cfunc=handle)
        return True


class HelperCompiler(CompilerBase):
    """Compiles helpers: `njit(pipeline_class=HelperCompiler)`."""

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [
            (_LinkedLowering if compiler_pass is NativeLowering else compiler_pass, purpose)
            for compiler_pass, purpose in manager.passes
        ]
        manager.finalize()
        return [manager]
