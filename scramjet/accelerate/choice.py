"""Which executor a policy gets, decided in one place and said in words."""

from __future__ import annotations

from torch import nn

from scramjet.accelerate.executor import Executor
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.engine.pool import Pool
from scramjet.policies.policy import Policy

WIDEST = 512
"""Units of the widest layer that Numba is chosen for: with 1024, torch's operators were measured as fast or faster
(docs/benchmarks.md)."""


def choose_executor(policy: Policy, pool: Pool, *, fused: bool, precision: str = "float32") -> Executor:
    """The fastest executor that can run a policy: Triton on the GPU, Numba on the CPU, else torch's operators.

    `fused` is the user's leave to use kernels (`--fused`); `precision` that of matrix products on the GPU. The
    executor's `why` says what kept the kernels from being chosen.
    """
    if not fused:
        return TorchExecutor(policy, "--no-fused")
    if policy.device.type == "cuda":
        from scramjet.accelerate.triton.executor import TritonExecutor, triton_mlp

        mlp = triton_mlp(policy, pool, precision)
        return TorchExecutor(policy, mlp) if isinstance(mlp, str) else TritonExecutor(policy, mlp)
    widest = max((layer.out_features for layer in policy.modules() if isinstance(layer, nn.Linear)), default=0)
    if widest > WIDEST:
        return TorchExecutor(policy, f"torch's operators are as fast with layers of {widest} units")
    from scramjet.accelerate.numba.executor import NumbaExecutor, UnsupportedPolicyError

    try:
        return NumbaExecutor(policy)
    except UnsupportedPolicyError as reason:
        return TorchExecutor(policy, str(reason))
