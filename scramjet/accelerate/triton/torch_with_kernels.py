"""The plain executor on the GPU: the network in torch's operators, and what surrounds it in Triton's kernels.

Around a network, torch launches over a hundred small operators for a gradient step, and at usual sizes each launch
takes longer than its work. Here a few kernels do the same: they select the minibatch, compute the loss with its
gradients, and bound the norm of the gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.accelerate.executor import LossSettings
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.torch_executor import TorchExecutor
from scramjet.accelerate.triton.fused_loss import fused_minibatch_loss
from scramjet.accelerate.triton.selection import fused_select
from scramjet.algorithms.ppo import LossTerms
from scramjet.compile.triton import HAS_TRITON, triton_jit

if HAS_TRITON:
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]


class TorchWithKernels(TorchExecutor):
    """Acts, values and learns as `TorchExecutor` does, up to rounding, with fewer launches."""

    def _select(self, samples: Samples, units: Tensor) -> Samples:
        return fused_select(samples, units)

    def _loss(self, minibatch: Samples, loss: LossSettings, statistics: Tensor | None = None) -> LossTerms:
        return fused_minibatch_loss(self.policy, minibatch, loss, self.own_losses, statistics)

    @torch.no_grad()
    def _clip_and_step(self, loss: LossSettings, optimizer: torch.optim.Adam) -> Tensor:
        gradients = [parameter.grad for parameter in self.policy.parameters() if parameter.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients))
        found = torch.empty(2, device=norms.device)
        bound = torch.inf if loss.max_grad_norm is None else loss.max_grad_norm
        _norm_kernel[(1,)](norms, found, len(norms), float(bound), block=1 << (len(norms) - 1).bit_length())
        optimizer.grad_scale = found[1:]  # type: ignore[attr-defined] # what the optimizer divides gradients by
        optimizer.step()
        return found[0]


@triton_jit("num_norms")
def _norm_kernel(norms_at, out_at, num_norms, bound, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write the norm of all gradients from the norms of each, and what divides them to keep it within the bound."""
    place = tl.arange(0, block)
    norms = tl.load(norms_at + place, mask=place < num_norms, other=0.0)
    norm = tl.sqrt(tl.sum(norms * norms, axis=0))
    excess = (norm + 1e-6) / bound
    tl.store(out_at, norm)
    tl.store(out_at + 1, tl.where(excess < 1.0, 1.0, excess))
