"""Finds out whether a network's kernels fit on the GPU at hand, by launching them."""

from __future__ import annotations

import torch

from scramjet.accelerate.executor import LossSettings
from scramjet.accelerate.samples import Samples
from scramjet.accelerate.triton.mlp.fused_mlp import TritonMLP
from scramjet.accelerate.triton.mlp.plan import Plan
from scramjet.accelerate.triton.mlp.tuning import SMALLEST_BLOCK


def fitted_mlp(plan: Plan, precision: str) -> TritonMLP | str:
    """The kernels of a network with the largest blocks that fit on the GPU; the reason in words if none do.

    Sizes that are known to fit are not tried, since that compiles the kernels.
    """
    from triton.runtime.errors import OutOfResources

    mlp = TritonMLP(plan, precision=precision)
    while not mlp.is_proven and mlp.device.type == "cuda":
        launch, (first, second) = mlp.launch, plan.towers[0].hidden
        try:
            _launch_all(mlp)
            break
        except OutOfResources as error:
            if launch.block <= SMALLEST_BLOCK:
                return (
                    f"{first.in_features} inputs and hidden layers of {first.out_features} and {second.out_features} "
                    f"units do not fit on this GPU in {precision}: {error}"
                )
        mlp = TritonMLP(plan, precision=precision, launch=launch._replace(block=launch.block // 2, stages=1))
        mlp.is_proven = False
    return mlp


def _launch_all(mlp: TritonMLP) -> None:
    """Launch each kernel that holds a network's weights on one sample; weights and optimizer stay as they are."""
    plan, kept = mlp.plan, mlp.flat.snapshot()
    number = torch.zeros(1, device=mlp.device)
    inputs = number.new_zeros(1, mlp.num_inputs)
    noise = number.new_zeros(1, plan.num_components)
    action = noise.clone() if plan.is_normal else noise.long()
    # What a run may have is all there: each takes room on the chip.
    is_choice = plan.has_policy and not plan.is_normal
    mask = None if not is_choice else torch.ones(1, plan.num_logits, dtype=torch.bool, device=mlp.device)
    samples = Samples(inputs, mask, action, number, number, number, number, place=number.long(), counts=number == 0)
    loss = LossSettings(
        clip=number, entropy_coef=number, value_coef=1.0, value_clip=1.0, max_grad_norm=None,
        normalizes_advantages=False,
    )  # fmt: skip
    if plan.has_policy:
        mlp.act(inputs, mask, noise, action, number.clone(), number.clone() if plan.is_one_network else None)
    mlp.gradients(inputs, samples, number.long(), number.expand(2).contiguous(), loss, share=number)
    mlp.flat.restore(kept)
