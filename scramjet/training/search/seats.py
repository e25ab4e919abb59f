"""Returns for learners from search: lambda-returns of a rollout, in games of two also, where values are turned."""

from __future__ import annotations

import torch
from torch import Tensor

from scramjet.algorithms.advantages import gae
from scramjet.errors import TrainingError


def lambda_returns(
    reward: Tensor,
    value: Tensor,
    seat: Tensor | None,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """TD(lambda) returns [T, N] for whoever is to move; `reward` [T, N] or [T, N, 2], `value` [T + 1, N].

    In a zero-sum game of two `seat` [T + 1, N] says who is to move: all is seen from the first seat, for which the
    value of a position where the other moves counts negatively, and turned back. The discount is per move. A
    game of two that the time limit cuts is worth 0 from there on: nobody sees its last position.
    """
    ends = terminated, truncated, final_value
    if seat is None:
        return gae(reward, value, *ends, gamma=gamma, gae_lambda=gae_lambda)[1]
    sign = 1.0 - 2.0 * seat.float()  # [T + 1, N]
    first = reward[..., 0].contiguous()
    return gae(first, value * sign, *ends, gamma=gamma, gae_lambda=gae_lambda)[1] * sign[:-1]


def check_zero_sum(reward: Tensor, name: str) -> None:
    """Raise a TrainingError where the rewards of two seats, [T, N, 2], do not cancel out: values cannot turn then.

    `name` is the world's. A world with one seat, [T, N, 1], turns no values.
    """
    if reward.shape[-1] == 1:
        return
    worst = reward.sum(-1).abs().max()
    if bool(worst > 1e-4 * (1.0 + reward.abs().max())):
        t, n = torch.nonzero(reward.sum(-1).abs() == worst)[0].tolist()
        raise TrainingError(
            f"{name} gave its two seats the rewards {reward[t, n].tolist()}, which do not sum to 0; search turns one "
            f"seat's value into the other's, so it needs a zero-sum game; use --algorithm ppo"
        )
