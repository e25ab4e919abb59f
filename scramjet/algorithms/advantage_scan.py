"""Generalized advantage estimation on the GPU: a scan over time in Triton.

A step adds its error to a share of what follows, and two steps in a row are again such a step. So a program takes a
tile of steps of some rows and combines the steps as a tree, with all loads under way at once; a thread that goes back
step by step waits for memory in each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.kernels.gpu.language import HAS_TRITON, power_of_two, triton_jit

if HAS_TRITON:
    import triton.language as tl

MOST_STEPS, ROWS, WARPS = 64, 16, 4
"""Steps and rows of a tile, and warps of a program. Longer rollouts are a tile after the other."""


def gae_by_scan(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """`advantages.gae` by a scan: advantages and returns, both [T, N], equal to it up to rounding."""
    num_steps, num_rows = reward.shape
    reward, value, final_value = reward.contiguous(), value.contiguous(), final_value.contiguous()
    terminated, truncated = terminated.contiguous(), truncated.contiguous()
    advantage, returns = torch.empty_like(reward), torch.empty_like(reward)
    steps = min(MOST_STEPS, power_of_two(num_steps))
    _gae_kernel[(-(-num_rows // ROWS),)](
        reward, value, terminated.view(torch.uint8), truncated.view(torch.uint8), final_value, advantage, returns,
        num_steps, num_rows, gamma, gamma * gae_lambda, steps=steps, rows=ROWS, num_warps=WARPS,
    )  # fmt: skip
    return advantage, returns


@triton_jit()
def _follow(keep, add, next_keep, next_add):  # type: ignore[no-untyped-def]
    """One step after another as one. What is not kept does not count at all, even if it is infinite or NaN."""
    is_kept = next_keep != 0.0
    return tl.where(is_kept, keep * next_keep, 0.0), tl.where(is_kept, next_keep * add, 0.0) + next_add


@triton_jit(
    "num_steps", "num_rows", "reward_at", "value_at", "terminated_at", "truncated_at", "final_value_at", "advantage_at",
    "returns_at",
)  # fmt: skip
def _gae_kernel(  # type: ignore[no-untyped-def]
    reward_at, value_at, terminated_at, truncated_at, final_value_at, advantage_at, returns_at, num_steps, num_rows,
    gamma, decay, steps: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    """One program for each block of rows, from the last step to the first."""
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)[None, :]
    back = tl.arange(0, steps)[:, None]
    following = tl.zeros([1, rows], tl.float32)
    for done in range(0, num_steps, steps):
        step = num_steps - 1 - done - back
        is_here = (step >= 0) & (row < num_rows)
        at = step.to(tl.int64) * num_rows + row
        is_cut = tl.load(truncated_at + at, mask=is_here, other=0) != 0
        is_over = (tl.load(terminated_at + at, mask=is_here, other=0) != 0) | is_cut
        worth = tl.load(value_at + at, mask=is_here, other=0.0)
        next_value = tl.load(value_at + at + num_rows, mask=is_here, other=0.0)
        final = tl.load(final_value_at + at, mask=is_here, other=0.0)
        next_value = tl.where(is_cut, final, tl.where(is_over, 0.0, next_value))
        error = tl.load(reward_at + at, mask=is_here, other=0.0) + gamma * next_value - worth
        keep, error = tl.associative_scan((tl.where(is_over, 0.0, decay), error), 0, _follow)
        advantage = tl.where(keep != 0.0, keep * following, 0.0) + error
        tl.store(advantage_at + at, advantage, mask=is_here)
        tl.store(returns_at + at, advantage + worth, mask=is_here)
        following = tl.sum(tl.where(back == steps - 1, advantage, 0.0), axis=0, keep_dims=True)
