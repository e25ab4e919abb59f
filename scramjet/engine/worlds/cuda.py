"""The CUDA back-end: a world's kernels compiled for the GPU from the same functions, one GPU thread an env.

Kernels run on torch's current stream, so a CUDA graph that is being recorded records them with the operators of torch
around them. Nothing in `step` waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numba
import numpy as np

from scramjet.compile.cuda import block_size, numba_cuda
from scramjet.compile.numba_internals import keep_cuda_on_disk
from scramjet.engine.layout import leaf_layout, rows_per_env, state_dtype
from scramjet.engine.privileged import shown_space
from scramjet.engine.transition import KernelArrays
from scramjet.engine.trees import leaves, space_tree
from scramjet.engine.worlds import kernels
from scramjet.engine.worlds.rules import RulesCompiler
from scramjet.engine.worlds.transitions import Compilers, EpisodeLog
from scramjet.envs import rng
from scramjet.envs.api import Dict, Env

# --- Steps by way of shared memory
#
# Records and observations of neighbouring envs lie far apart for the threads that work on them at the same moment, and
# the GPU fetches 32 bytes for each byte that such a thread touches. So a block of threads first copies its envs'
# records into its shared memory side by side, steps them there, and writes records and observations back as one
# stretch.
#
# One thread steps an env. With few envs a block takes fewer of them and has several threads for each: these only help
# to copy, and let the envs of a block step in different warps, where they wait less for each other.


MAX_STAGED_RECORD = 160
"""Bytes. Larger records are not staged: a step touches only a part of them."""
MAX_RECORD_BESIDE_OBS = 2048
"""Bytes. Beside larger records observations are not staged: these worlds need the shared memory, and compute more than
they write."""
MIN_STAGED_ROW, MAX_STAGED_ROW = 24, 640
"""Bytes of one observation, or of one part of it, that is staged."""
MAX_SHARED_BYTES = 46 * 1024
BLOCK_SIZES = (128, 64)
"""The most envs of a block: the first that fits counts."""
FEWEST_ENVS = 8
"""Of a block."""
THREADS = 128
"""Of a block that takes fewer envs than it could."""


@dataclass(frozen=True)
class Staging:
    """What of a world goes by way of shared memory, and how many envs a block of threads steps."""

    block: int  # the most envs of a block
    record: np.dtype | None  # with room behind it, so that neighbours lie in different banks; None: not staged
    words: int  # of 8 bytes, of a record
    parts: tuple[int, ...]  # of the observation, by number, that are staged

    def shared_bytes(self, num_envs: int) -> int:
        """Shared memory that a block of so many envs needs for records; that for observations is fixed when the kernel
        compiles."""
        return 0 if self.record is None else num_envs * self.record.itemsize

    def launch(self, num_envs: int, multiprocessors: int | None = None) -> dict[str, Any]:
        """Settings to `launch` the step of `num_envs` envs with: threads for each env, envs of a block, shared memory.

        `multiprocessors`: of the GPU, by default of the one that is there.
        """
        envs = block_size(num_envs, FEWEST_ENVS, self.block, multiprocessors)
        threads = max(1, THREADS // envs) if envs < self.block else 1
        return {"block": (threads, envs), "shared_bytes": self.shared_bytes(envs)}


def plan(env: Env) -> Staging:
    """Decide what is staged for this world."""
    plain = state_dtype(env)
    words = plain.itemsize // 8
    stages_record = plain.itemsize <= MAX_STAGED_RECORD and plain.itemsize % 8 == 0
    record = _padded(plain, 8 * (words | 1)) if stages_record else None
    sizes = [_row_bytes(space) for space in leaves(space_tree(shown_space(env)))]
    parts = [k for k, size in enumerate(sizes) if MIN_STAGED_ROW <= size <= MAX_STAGED_ROW]
    if rows_per_env(env) > 1 or plain.itemsize > MAX_RECORD_BESIDE_OBS:
        parts = []
    for block in BLOCK_SIZES:
        shared = block * ((record.itemsize if record is not None else 0) + sum(sizes[k] for k in parts))
        if shared <= MAX_SHARED_BYTES:
            return Staging(block, record, words, tuple(parts))
    return Staging(BLOCK_SIZES[0], record, words, ())


def _row_bytes(space: Any) -> int:
    shape, dtype = leaf_layout(space)
    return prod(shape) * dtype.itemsize


def _padded(dtype: np.dtype, itemsize: int) -> np.dtype:
    names = dtype.names or ()
    assert dtype.fields is not None
    formats, offsets = [dtype[name] for name in names], [dtype.fields[name][1] for name in names]
    return np.dtype({"names": list(names), "formats": formats, "offsets": offsets, "itemsize": itemsize})


def staged_row(env: Env, staging: Staging, plain_row: Callable[..., Any], cuda: Any) -> Callable[..., Any]:
    """(obs, i) -> what `observe` writes to: the env's own row of what is staged, row i of the rest."""
    if not isinstance(shown_space(env), Dict):
        if not staging.parts:
            return plain_row

        def row(obs: Any, i: Any) -> Any:
            return obs[cuda.threadIdx.y]

        return row
    spelled = plain_row.__doc__ or ""
    for k in staging.parts:
        spelled = spelled.replace(f"obs[{k}][i]", f"obs[{k}][cuda.threadIdx.y]")
    scope = {**plain_row.__globals__, "cuda": cuda}
    exec(f"def row(obs, i):\n    return {spelled}\n", scope)
    made: Callable[..., Any] = scope["row"]
    return made


def staged_step(env: Env, staging: Staging, step_env: Any, cuda: Any) -> Callable[..., Any]:
    """A kernel that steps a block of envs, numbered along y; threads along x help to copy. Beside the records it takes
    `words`: the same memory as int64 numbers."""
    scope: dict[str, Any] = {
        "cuda": cuda, "step_env": step_env, "KernelArrays": KernelArrays, "EpisodeLog": EpisodeLog
    }  # fmt: skip
    lines = [
        "def step(num_envs, ticks_before, tick, states, words, actions, obs, mask, turn,",
        "         reward, terminated, truncated, final_obs, of_terminated, log, log_size):",
        "    mine = cuda.threadIdx.y",
        "    me = mine * cuda.blockDim.x + cuda.threadIdx.x",
        "    threads = cuda.blockDim.x * cuda.blockDim.y",
        "    first = cuda.blockIdx.x * cuda.blockDim.y",
        "    count = min(cuda.blockDim.y, num_envs - first)",
    ]
    record = "states[first + mine]"
    if staging.record is not None:
        stride = staging.record.itemsize // 8
        scope["record_type"], scope["int64"] = numba.from_dtype(staging.record), numba.int64
        lines += [
            "    staged = cuda.shared.array(0, record_type)",
            "    staged_words = cuda.shared.array(0, int64)",
            f"    for k in range(me, count * {staging.words}, threads):",
            f"        staged_words[k // {staging.words} * {stride} + k % {staging.words}]"
            f" = words[first * {staging.words} + k]",
            "    cuda.syncthreads()",
        ]
        record = "staged[mine]"
    is_tree = isinstance(shown_space(env), Dict)
    spaces = leaves(space_tree(shown_space(env)))
    for k in staging.parts:
        shape, dtype = leaf_layout(spaces[k])
        scope[f"shape_{k}"], scope[f"dtype_{k}"] = (staging.block, *shape), numba.from_dtype(dtype)
        lines.append(f"    part_{k} = cuda.shared.array(shape_{k}, dtype_{k})")
    shown = [f"part_{k}" if k in staging.parts else f"obs[{k}]" for k in range(len(spaces))]
    seen = f"({', '.join(shown)},)" if is_tree else ("part_0" if staging.parts else "obs")
    lines += [
        "    if mine < count and cuda.threadIdx.x == 0:",
        f"        out = KernelArrays({seen}, mask, turn, reward, terminated, truncated, final_obs)",
        f"        step_env({record}, first + mine, ticks_before[0] + tick, actions, out, of_terminated,",
        "                 EpisodeLog(log, log_size))",
        "    cuda.syncthreads()",
    ]
    if staging.record is not None:
        lines += [
            f"    for k in range(me, count * {staging.words}, threads):",
            f"        words[first * {staging.words} + k]"
            f" = staged_words[k // {staging.words} * {stride} + k % {staging.words}]",
        ]
    for k in staging.parts:
        shape, _ = leaf_layout(spaces[k])
        place = ", ".join(_digits(shape))
        target = f"obs[{k}]" if is_tree else "obs"
        lines += [
            f"    for k in range(me, count * {prod(shape)}, threads):",
            f"        {target}[first + k // {prod(shape)}, {place}] = part_{k}[k // {prod(shape)}, {place}]",
        ]
    exec("\n".join(lines), scope)
    made: Callable[..., Any] = scope["step"]
    return made


def _digits(shape: tuple[int, ...]) -> list[str]:
    """Expressions for the index of element k of a row along each axis."""
    found = []
    for axis, size in enumerate(shape):
        below = prod(shape[axis + 1 :])
        found.append(f"k // {below} % {size}" if below > 1 else f"k % {size}")
    return found


# --- The kernels


def compile_kernels(env: Env, staging: Staging) -> kernels.Kernels:
    """The kernels of `env` for the GPU, each compiled when first launched; all take the number of envs first."""
    cuda = numba_cuda()
    function = cuda.jit(device=True, forceinline=True)
    view = cuda.jit(device=True, inline="always")  # a function of its own may not return a part of an array
    rules_compiler = RulesCompiler(env, function, cuda.jit(device=True), {rng.philox4x32: function(philox4x32)})

    def claim(log_size: Any, blank: Any) -> Any:
        """Envs log at the same time: each takes a slot of its own."""
        return cuda.atomic.add(log_size, 0, 1) % blank

    rules = rules_compiler.rules()
    compilers = Compilers(function, view, function, function, claim=claim)
    made = kernels.build(rules, compilers)
    reset_one, observe_one = made.reset, made.observe
    simulate_one, views_one, scores_one = made.simulate, made.views, made.scores
    branch_one = made.branch

    def kernel(plain: Callable[..., Any]) -> Any:
        dispatcher = cuda.jit(plain)
        what = f"{type(env).__name__}'s rules for the GPU"
        keep_cuda_on_disk(dispatcher, rules_compiler.fingerprint, plain.__name__, what)
        return dispatcher

    @kernel
    def reset(num_envs, key, first_env, states, obs, mask, turn):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < num_envs:
            reset_one(i, i + 1, key, first_env, states, obs, mask, turn)

    @kernel
    def observe(num_envs, states, obs, mask, turn):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < num_envs:
            observe_one(i, i + 1, states, obs, mask, turn)

    @kernel
    def simulate(  # type: ignore[no-untyped-def]
        num_envs, states, actions, obs, mask, turn, reward, terminated, truncated, final_obs
    ):
        i = cuda.grid(1)
        if i < num_envs:
            simulate_one(i, i + 1, states, actions, obs, mask, turn, reward, terminated, truncated, final_obs)

    @kernel
    def branch(  # type: ignore[no-untyped-def]
        num_envs, key, depth, live, states, actions, obs, mask, turn, reward, terminated, truncated, final_obs
    ):
        i = cuda.grid(1)
        if i < num_envs:
            branch_one(
                i, i + 1, key, depth, live, states, actions, obs, mask, turn, reward, terminated, truncated, final_obs
            )

    @kernel
    def views(num_envs, states, obs):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < num_envs:
            views_one(i, i + 1, states, obs)

    @kernel
    def scores(num_envs, states, scores):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < num_envs:
            scores_one(i, i + 1, states, scores)

    shown_row = staged_row(env, staging, rules.row, cuda)
    staged = kernels.build(rules, replace(compilers, shown_row=shown_row)).step_env
    step = kernel(staged_step(env, staging, staged, cuda))
    return kernels.Kernels(staged, reset, observe, step, step, None, simulate, branch, branch, views, scores)


def philox4x32(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """What `scramjet.envs.rng` computes with integers of any size, in 32 bits: a GPU multiplies these four times as
    fast, and envs that begin an episode keep their neighbours waiting."""
    x0, x1, x2, x3 = np.uint32(c0), np.uint32(c1), np.uint32(c2), np.uint32(c3)
    key_0, key_1 = np.uint32(k0), np.uint32(k1)
    for _ in range(10):
        product_0 = np.uint64(0xD2511F53) * np.uint64(x0)
        product_1 = np.uint64(0xCD9E8D57) * np.uint64(x2)
        x0 = np.uint32(product_1 >> np.uint64(32)) ^ x1 ^ key_0
        x2 = np.uint32(product_0 >> np.uint64(32)) ^ x3 ^ key_1
        x1, x3 = np.uint32(product_1), np.uint32(product_0)
        key_0 = np.uint32(key_0 + np.uint32(0x9E3779B9))
        key_1 = np.uint32(key_1 + np.uint32(0xBB67AE85))
    return np.int64(x0), np.int64(x1), np.int64(x2), np.int64(x3)
