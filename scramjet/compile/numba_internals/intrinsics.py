"""Functions for compiled code that Numba has no public counterpart of: they write LLVM's code where they are called.

A function of Numba's own in their place would be compiled, called and taken in anew by each function that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

_SGEMM, _SET_THREADS = "scramjet_sgemm", "scramjet_set_blas_threads"


@intrinsic
def _call(typing_context, address, numbers):  # type: ignore[no-untyped-def]
    """Call the function at an address with a tuple of whole numbers."""
    signature = types.void(types.int64, numbers)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        given = [
            context.cast(builder, builder.extract_value(arguments[1], i), kind, types.int64)
            for i, kind in enumerate(signature.args[1])
        ]
        kind = ir.FunctionType(ir.VoidType(), [word] * len(given))
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), given)
        return context.get_dummy_value()

    return signature, generate


def array_at(kind: Any, num_dimensions: int, doc: str) -> Any:
    """A function for compiled code: (address, *shape) to the array of `kind` there, of one or two dimensions."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.return_type)(context, builder)
        item = context.get_data_type(kind)
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(item))
        shape = list(arguments[1:])
        strides = [itemsize]
        for size in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        data = builder.inttoptr(arguments[0], item.as_pointer())
        populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
        return array._getvalue()

    result = types.Array(kind, num_dimensions, "C")

    def one(typing_context, address, size):  # type: ignore[no-untyped-def]
        return result(types.int64, types.intp), generate

    def two(typing_context, address, rows, columns):  # type: ignore[no-untyped-def]
        return result(types.int64, types.intp, types.intp), generate

    made: Any = one if num_dimensions == 1 else two
    made.__doc__ = doc
    return intrinsic(made)


def record_at(dtype: np.dtype) -> Any:
    """A function for compiled code: (address) to the record of `dtype` there."""
    kind = from_dtype(dtype)

    @intrinsic
    def record(typing_context, address):  # type: ignore[no-untyped-def]
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(kind))

        return kind(types.int64), generate

    return record


@intrinsic
def _use_wide_vectors(typing_context):  # type: ignore[no-untyped-def]
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # llvmlite's own `add` knows no attribute with a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _fetch_and_increment(typing_context, counter):  # type: ignore[no-untyped-def]
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        place = builder.inttoptr(arguments[0], word.as_pointer())
        return builder.atomic_rmw("add", place, word(1), "monotonic")

    return types.int64(types.int64), generate


@intrinsic
def _call_sgemm(typing_context, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # type: ignore[no-untyped-def]
    """BLAS's sgemm, which takes everything by its address: numbers from the stack, matrices as they are given."""
    i1, i4, f4, address = types.int8, types.int32, types.float32, types.uintp
    signature = types.void(i1, i1, i4, i4, i4, f4, address, i4, address, i4, f4, address, i4)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        addresses = []
        for kind, argument in zip(signature.args, arguments, strict=True):
            if kind == types.uintp:
                addresses.append(builder.inttoptr(argument, pointer))
            else:
                slot = cgutils.alloca_once(builder, argument.type)
                builder.store(argument, slot)
                addresses.append(builder.bitcast(slot, pointer))
        kind = ir.FunctionType(ir.VoidType(), [pointer] * len(addresses))
        builder.call(cgutils.get_or_insert_function(builder.module, kind, _SGEMM), addresses)
        return context.get_dummy_value()

    return signature, generate


# To a type checker an intrinsic takes its typing context first; compiled code leaves that out.
call: Any = _call
use_wide_vectors: Any = _use_wide_vectors
fetch_and_increment: Any = _fetch_and_increment
sgemm: Any = _call_sgemm
set_blas_threads: Any = types.ExternalFunction(_SET_THREADS, types.int32(types.int32))

_ENGINES: list[Any] = []  # they own machine code whose address others hold


def register_blas(sgemm_address: int, set_threads_address: int) -> None:
    """Say where `sgemm` and `set_blas_threads` are; code from the cache finds them by name when it is loaded."""
    llvm.add_symbol(_SGEMM, sgemm_address)
    llvm.add_symbol(_SET_THREADS, set_threads_address)


def exchange_openmp_threads(get_threads_address: int, set_threads_address: int) -> int:
    """The address of a C function (threads) that sets OpenMP's number for this thread and returns what it was."""
    llvm.add_symbol("omp_get_max_threads", get_threads_address)
    llvm.add_symbol("omp_set_num_threads", set_threads_address)
    module = llvm.parse_assembly(
        """
        declare i32 @omp_get_max_threads()
        declare void @omp_set_num_threads(i32)
        define i32 @exchange(i32 %threads) {
            %before = call i32 @omp_get_max_threads()
            call void @omp_set_num_threads(i32 %threads)
            ret i32 %before
        }"""
    )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    _ENGINES.append(llvm.create_mcjit_compiler(module, machine))
    return int(_ENGINES[-1].get_function_address("exchange"))


# --- Blocks of matrix products that keep their results in vector registers
#
# The compiler does not keep a block of sums in registers over loops whose lengths it does not know. Here each sum is a
# value of its own that goes from round to round.


_HAS_WIDE_VECTORS = bool(llvm.get_host_cpu_features().get("avx512f"))
LANES = 16 if _HAS_WIDE_VECTORS else 8
"""Numbers in a vector."""
VECTORS = 2
"""Vectors side by side in a block of sums."""
OUTPUTS = 8 if _HAS_WIDE_VECTORS else 4
"""Sums of each lane in a block: with `VECTORS` as many as there are registers for."""
PAIRED, PARTNERS = LANES // 4, 4
"""Rows of the two sides of a block of products that are added up over lanes; one vector holds all its results."""

_FLOAT, _WORD = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_ADDRESSES = ir.VectorType(ir.IntType(32), LANES)
_UNDEFINED = ir.Constant(_VECTOR, ir.Undefined)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = 4
    return loaded


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 4


def _shuffled(builder: Any, first: Any, second: Any, lanes: Sequence[int]) -> Any:
    return builder.shuffle_vector(first, second, ir.Constant(_ADDRESSES, list(lanes)))


def _in_all_lanes(builder: Any, address: Any) -> Any:
    one = builder.insert_element(_UNDEFINED, _load(builder, address, _FLOAT), ir.IntType(32)(0))
    return _shuffled(builder, one, _UNDEFINED, [0] * LANES)


def _multiplied_and_added(builder: Any, a: Any, b: Any, c: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    name = f"llvm.fmuladd.v{LANES}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c])


def _rounds(
    builder: Any, levels: Sequence[tuple[Any, Sequence[Any]]], at: list[Any], sums: list[Any], body: Callable[..., Any]
) -> list[Any]:
    """Loops in loops: each level has a count above 0 and how far each address in `at` moves a round; returns the sums
    that `body` (addresses, sums) makes in the innermost."""
    if not levels:
        made: list[Any] = body(at, sums)
        return made
    (count, strides), before = levels[0], builder.block
    loop = builder.append_basic_block("round")
    builder.branch(loop)
    builder.position_at_end(loop)
    phis = [builder.phi(value.type) for value in (_WORD(0), *at, *sums)]
    for phi, value in zip(phis, (_WORD(0), *at, *sums), strict=True):
        phi.add_incoming(value, before)
    number, here, held = phis[0], phis[1 : 1 + len(at)], phis[1 + len(at) :]
    made = _rounds(builder, levels[1:], here, held, body)
    following = [builder.add(number, _WORD(1))]
    following += [builder.add(address, stride) for address, stride in zip(here, strides, strict=True)]
    for phi, value in zip(phis, (*following, *made), strict=True):
        phi.add_incoming(value, builder.block)
    after = builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed("<", following[0], count), loop, after)
    builder.position_at_end(after)
    return made


def _begin(builder: Any) -> None:
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # see `use_wide_vectors`


@intrinsic
def _weighted_sums(typing_context, n0, n1, n2, x, x0, x1, x2, w, w0, w1, w2, bias, y, y_row):  # type: ignore[no-untyped-def]
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        n0, n1, n2, x, x0, x1, x2, w, w0, w1, w2, bias, y, y_row = arguments
        _begin(builder)
        first = [_in_all_lanes(builder, builder.add(bias, _WORD(4 * i))) for i in range(OUTPUTS)]

        def body(at: list[Any], sums: list[Any]) -> list[Any]:
            seen = [_load(builder, builder.add(at[0], _WORD(4 * LANES * v)), _VECTOR) for v in range(VECTORS)]
            weights = [_in_all_lanes(builder, builder.add(at[1], _WORD(4 * i))) for i in range(OUTPUTS)]
            places = [(i, v) for i in range(OUTPUTS) for v in range(VECTORS)]
            return [
                _multiplied_and_added(builder, weights[i], seen[v], held)
                for (i, v), held in zip(places, sums, strict=True)
            ]

        levels = [(n0, [x0, w0]), (n1, [x1, w1]), (n2, [x2, w2])]
        sums = _rounds(builder, levels, [x, w], [one for one in first for _ in range(VECTORS)], body)
        for i in range(OUTPUTS):
            for v in range(VECTORS):
                _store(builder, sums[i * VECTORS + v], builder.add(y, _WORD(4 * LANES * v)))
            y = builder.add(y, y_row)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 14), generate


@intrinsic
def _products_over_lanes(typing_context, n0, n1, x, x_row, x0, x1, y, y_row, y0, y1, sums):  # type: ignore[no-untyped-def]
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        n0, n1, x, x_row, x0, x1, y, y_row, y0, y1, result = arguments
        _begin(builder)
        x_rows, y_rows = [_WORD(0)], [_WORD(0)]
        for rows, row, count in ((x_rows, x_row, PAIRED), (y_rows, y_row, PARTNERS)):
            while len(rows) < count:
                rows.append(builder.add(rows[-1], row))

        def body(at: list[Any], sums: list[Any]) -> list[Any]:
            xs = [_load(builder, builder.add(at[0], row), _VECTOR) for row in x_rows]
            ys = [_load(builder, builder.add(at[1], row), _VECTOR) for row in y_rows]
            return [
                _multiplied_and_added(builder, xs[i // PARTNERS], ys[i % PARTNERS], held) for i, held in enumerate(sums)
            ]

        zeros = [ir.Constant(_VECTOR, [0.0] * LANES)] * (PAIRED * PARTNERS)
        held = _rounds(builder, [(n0, [x0, y0]), (n1, [x1, y1])], [x, y], zeros, body)
        _store(builder, builder.fadd(_load(builder, result, _VECTOR), _sums_over_lanes(builder, held)), result)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 11), generate


def _sums_over_lanes(builder: Any, vectors: list[Any]) -> Any:
    """A vector of the sum of each of LANES vectors, in their order; neighbours are added pair by pair."""
    half = LANES // 2
    while half:
        starts = [source + group for source in (0, LANES) for group in range(0, LANES, 2 * half)]
        low = [start + lane for start in starts for lane in range(half)]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [
            builder.fadd(
                _shuffled(builder, one, other, low), _shuffled(builder, one, other, [lane + half for lane in low])
            )
            for one, other in pairs
        ]
        half //= 2
    return vectors[0]


@intrinsic
def _transpose(typing_context, x, x_row, y, y_row):  # type: ignore[no-untyped-def]
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, x_row, y, y_row = arguments
        _begin(builder)
        vectors = []
        for _ in range(LANES):
            vectors.append(_load(builder, x, _VECTOR))
            x = builder.add(x, x_row)
        step = LANES // 2
        while step:  # blocks change sides, smaller ones in each round
            low = [lane if not lane & step else lane - step + LANES for lane in range(LANES)]
            high = [lane + step if not lane & step else lane + LANES for lane in range(LANES)]
            for i in [i for i in range(LANES) if not i & step]:
                one, other = vectors[i], vectors[i + step]
                vectors[i] = _shuffled(builder, one, other, low)
                vectors[i + step] = _shuffled(builder, one, other, high)
            step //= 2
        for vector in vectors:
            _store(builder, vector, y)
            y = builder.add(y, y_row)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


# To a type checker an intrinsic takes its typing context first; compiled code leaves that out.
weighted_sums: Any = _weighted_sums
products_over_lanes: Any = _products_over_lanes
transpose: Any = _transpose
