"""Advantages and value targets from a rollout."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from scramjet.engine.jit import compiled


def gae(
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    final_value: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation (Schulman et al. 2016, eq. 16): advantages and returns, both [T, N].

    reward, terminated, truncated [T, N]; value [T + 1, N], its last row the value of what comes after the rollout;
    final_value [T, N], read only where truncated: the value of that episode's own last observation. A terminated
    episode has no future; a truncated one has a future that was not played; neither reaches into the next episode.
    """
    advantage = torch.empty_like(reward)
    _gae(
        reward.numpy(), value.numpy(), terminated.numpy(), truncated.numpy(), final_value.numpy(),
        advantage.numpy(), np.float32(gamma), np.float32(gae_lambda),
    )  # fmt: skip
    return advantage, advantage + value[:-1]


@compiled
def _gae(
    reward: np.ndarray, value: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, final_value: np.ndarray,
    advantage: np.ndarray, gamma: np.float32, gae_lambda: np.float32,
) -> None:  # fmt: skip
    num_steps, num_rows = reward.shape
    for t in range(num_steps - 1, -1, -1):
        for n in range(num_rows):
            goes_on = not (terminated[t, n] or truncated[t, n])
            next_value = value[t + 1, n] if goes_on else np.float32(0.0)
            next_value = final_value[t, n] if truncated[t, n] else next_value
            following = advantage[t + 1, n] if goes_on and t + 1 < num_steps else np.float32(0.0)
            error = reward[t, n] + gamma * next_value - value[t, n]
            advantage[t, n] = error + gamma * gae_lambda * following


class RewardScaler:
    """Scales rewards by the running deviation of the discounted return (Engstrom et al. 2020)."""

    def __init__(self, num_rows: int, *, gamma: float, clip: float = 10.0) -> None:
        self.gamma = gamma
        self.clip = clip
        self.running_return = torch.zeros(num_rows, dtype=torch.float64)  # [N], each row's return so far
        self.moments = torch.zeros(3, dtype=torch.float64)  # count, mean, sum of squared deviations

    def scale(self, reward: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
        """The rewards of a rollout, [T, N], in units of the return's deviation; moves the statistics."""
        _discounted_moments(
            reward.numpy(), terminated.numpy(), truncated.numpy(), self.running_return.numpy(), self.moments.numpy(),
            self.gamma,
        )  # fmt: skip
        count, _, squares = self.moments.tolist()
        deviation = (squares / count + 1e-8) ** 0.5
        return (reward / deviation).clamp(-self.clip, self.clip)


@compiled
def _discounted_moments(
    reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, running: np.ndarray, moments: np.ndarray,
    gamma: float,
) -> None:  # fmt: skip
    for t in range(reward.shape[0]):
        for n in range(reward.shape[1]):
            running[n] = running[n] * gamma + reward[t, n]
            moments[0] += 1.0
            shift = running[n] - moments[1]
            moments[1] += shift / moments[0]
            moments[2] += shift * (running[n] - moments[1])
            if terminated[t, n] or truncated[t, n]:
                running[n] = 0.0
