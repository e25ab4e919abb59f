"""The CUDA back-end: a world's kernels compiled for the GPU from the same functions, one GPU thread an env.

Kernels run on torch's current stream, so a CUDA graph that is being recorded records them with the operators of torch
around them. Nothing in `step` waits for the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from scramjet.compile.cuda import numba_cuda
from scramjet.compile.numba_internals import keep_cuda_on_disk
from scramjet.engine.worlds import kernels
from scramjet.engine.worlds.cuda_staging import Staging, staged_row, staged_step
from scramjet.engine.worlds.rules import RulesCompiler
from scramjet.engine.worlds.world_functions import Compilers
from scramjet.envs import rng
from scramjet.envs.api import Env


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
