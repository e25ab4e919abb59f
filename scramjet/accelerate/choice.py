"""Chooses the executor of a policy, and says in words why."""

from __future__ import annotations

from scramjet.accelerate.executor import Executor
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.engine.pool import Pool
from scramjet.policies.policy import Policy


def choose_executor(policy: Policy, pool: Pool, *, fused: bool, precision: str = "float32") -> Executor:
    """The fastest executor that can run a policy: Triton on the GPU, Numba on the CPU, else torch's operators.

    `fused`: whether kernels may be used (`--fused`). `precision`: that of matrix products on the GPU. If no kernels can
    run the policy, the `why` of the executor that is returned names the reason.
    """
    if not fused:
        return TorchExecutor(policy, "--no-fused")
    if policy.device.type == "cuda":
        from scramjet.accelerate.triton.executor import TritonExecutor, triton_mlp

        mlp = triton_mlp(policy, pool, precision)
        return TorchExecutor(policy, mlp) if isinstance(mlp, str) else TritonExecutor(policy, mlp)
    from scramjet.accelerate.numba.executor import NumbaExecutor, UnsupportedPolicyError

    try:
        return NumbaExecutor(policy)
    except UnsupportedPolicyError as reason:
        return TorchExecutor(policy, str(reason))
