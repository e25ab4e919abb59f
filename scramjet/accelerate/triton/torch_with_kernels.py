"""The plain executor on the GPU: the network in torch's operators, and what surrounds it in Triton's kernels."""

from __future__ import annotations

from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.accelerate.triton.fused_loss import fused_minibatch_loss
from scramjet.accelerate.triton.selection import fused_select
from scramjet.compile.triton import HAS_TRITON
from scramjet.policies.policy import Policy


def torch_with_kernels(policy: Policy, why: str = "") -> TorchExecutor:
    """A `TorchExecutor` whose minibatches are selected, and their loss computed, by one kernel each if Triton is here.

    `why`: why kernels do not run the whole network, in words.
    """
    if not HAS_TRITON:
        return TorchExecutor(policy, why)
    return TorchExecutor(policy, why, loss_of=fused_minibatch_loss, select=fused_select)
