"""Chooses the executor of a policy and says in words why, and how a stack of policies acts."""

from __future__ import annotations

from typing import Any

from torch import nn

from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.executors.executor import Executor
from scramjet.executors.numba_executor import NumbaExecutor, UnsupportedPolicyError
from scramjet.executors.stacks import NumbaStack, PolicyStack, TorchStack
from scramjet.executors.supports import LOSSES, SETTINGS
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies.policy import Policy

WIDEST = 512
"""Units of the widest layer that Numba is chosen for: with 1024, torch's operators were measured as fast or faster
(docs/benchmarks.md)."""


def choose_executor(
    policy: Policy, pool: Pool, *, fused: bool, precision: str = "float32", loss: str = "ppo"
) -> Executor:
    """The fastest executor that can run a policy: Triton on the GPU, Numba on the CPU, else torch's operators.

    `fused`: whether kernels may be used (`--fused`). `precision`: that of matrix products on the GPU. `loss`: what will
    be learned. The `why` of the executor that is returned says what kept kernels from being chosen, or from learning.
    """
    if not fused:
        return TorchExecutor(policy, "--no-fused")
    if policy.device.type == "cuda":
        return _choose_on_gpu(policy, pool, precision, loss)
    if policy.values_are_symlog:
        return TorchExecutor(policy, SETTINGS["symlog of values"].numba)
    widest = max((layer.out_features for layer in policy.modules() if isinstance(layer, nn.Linear)), default=0)
    if widest > WIDEST:
        return TorchExecutor(policy, f"torch's operators are as fast with layers of {widest} units")
    try:
        return NumbaExecutor(policy, _why_torch_learns(policy, pool, loss))
    except UnsupportedPolicyError as reason:
        return TorchExecutor(policy, str(reason))


def _choose_on_gpu(policy: Policy, pool: Pool, precision: str, loss: str) -> Executor:
    """Triton's kernels for the whole network; or the network as it is, with kernels for what surrounds it."""
    from scramjet.executors.torch_with_kernels import TorchWithKernels
    from scramjet.executors.triton_executor import TritonExecutor, triton_mlp
    from scramjet.kernels.gpu.language import HAS_TRITON

    mlp = SETTINGS["symlog of values"].triton if policy.values_are_symlog else triton_mlp(policy, precision)
    if isinstance(mlp, str):
        if not HAS_TRITON:
            return TorchExecutor(policy, mlp)
        return TorchWithKernels(policy, mlp, may_move_weights=loss != "own")  # it steps itself
    return TritonExecutor(policy, mlp, _why_torch_learns(policy, pool, loss))


def choose_stack(policy: Policy, count: int, observation_space: Any, *, fused: bool) -> PolicyStack:
    """A stack of `count` copies of a policy, on its device, that act at once by the fastest means that can run it."""
    if fused and policy.device.type == "cpu":
        try:
            return NumbaStack(policy, count)
        except UnsupportedPolicyError:
            pass
    return TorchStack(policy, count, observation_space)


def _why_torch_learns(policy: Policy, pool: Pool, loss: str) -> str:
    """Why torch's operators learn although kernels act, in words; empty where the kernels learn as well."""
    if loss not in LOSSES:
        return "torch's operators learn: " + ("the algorithm's own loss" if loss == "own" else f"{loss.upper()}'s loss")
    is_padded = policy.state_size > 0 and pool.played_by is not PlayedBy.ONE
    return "torch's operators learn where not every sample counts" if is_padded else ""
