"""Reward scaling: rewards divided by the running deviation of the discounted return."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from scramjet.compile.jit import RowKernel
from scramjet.runtime.ranks.moments import joined, moments_of

SCALED_CLIP = 10.0
"""Bound on the size of scaled rewards."""


class RewardScaler:
    """Divides rewards by the running standard deviation of the discounted return (Engstrom et al. 2020).

    So one learning rate and one weight of the value loss suit worlds whose rewards are large and whose are small.
    """

    def __init__(
        self,
        num_rewards: int,
        *,
        gamma: float,
        clip: float = SCALED_CLIP,
        device: torch.device | str = "cpu",
        join: Callable[[Tensor], Tensor] = lambda moments: moments,
        beside_bonuses: bool = False,
    ) -> None:
        """`num_rewards`: those of one step. `beside_bonuses`: whether the policy also learns from curiosity's bonuses.

        `join` gets the moments of a rollout's returns and returns those that count: of several processes together.
        """
        self.gamma = gamma
        self._join = join
        self.clip = clip
        self._beside_bonuses = beside_bonuses
        self.running_return = torch.zeros(num_rewards, dtype=torch.float64, device=device)
        """Discounted return of each row's episode so far, [R]; of each seat's, [N * S]."""
        self.moments = torch.zeros(3, dtype=torch.float64, device=device)
        """Count, mean and sum of squared deviations of all discounted returns so far."""

    def scale(self, reward: Tensor, terminated: Tensor, truncated: Tensor, alive: Tensor | None = None) -> Tensor:
        """Update the statistics with the rewards of a rollout, [T, R] or [T, N, S], and return the scaled rewards.

        Steps of agents that are not `alive` [T or T + 1, R] do not count.
        """
        returns, counts = self._discounted(reward, terminated | truncated, alive, self.running_return)
        self.moments.copy_(joined(self.moments, self._join(moments_of(returns, counts))))
        return (reward / self._divisor).clamp(-self.clip, self.clip)

    @property
    def _divisor(self) -> Tensor:
        return reward_divisor(self.moments, beside_bonuses=self._beside_bonuses)

    @property
    def factor(self) -> Tensor:
        """What rewards are multiplied by now, [1]; 1 before the first rollout."""
        return torch.where(self.moments[:1] > 0, 1.0 / self._divisor, 1.0).float()

    def earned_after(self, reward: Tensor, ended: Tensor, alive: Tensor | None, running: Tensor) -> Tensor:
        """Discounted returns after the steps of `reward`, where those before them were `running`; changes nothing."""
        running = running.clone()
        self._discounted(reward, ended, alive, running)
        return running

    def _discounted(
        self, reward: Tensor, ended: Tensor, alive: Tensor | None, running: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Discounted returns at every step, [T, R or N * S], and which of them count; `running` becomes the last."""
        if reward.dim() == 3:
            ended = ended.unsqueeze(-1).expand(reward.shape)
        counts = torch.ones_like(ended) if alive is None else alive[: len(reward)]
        counts = counts.flatten(1)
        returns = torch.empty(counts.shape, dtype=torch.float64, device=reward.device)
        _discounted_returns.on(
            counts.shape[1], reward.flatten(1), ended.flatten(1), counts, running, returns, self.gamma
        )
        return returns, counts


def reward_divisor(moments: Tensor, *, beside_bonuses: bool) -> Tensor:
    """What rewards are divided by where discounted returns have these moments [3]: their deviation, a scalar.

    Beside the bonuses of curiosity it is at least 1: until a reward is found, its small costs would drown the bonuses
    if they were made larger.
    """
    count, _, squares = moments.unbind()
    deviation = (squares / count + 1e-8).sqrt().float()
    return deviation.clamp(min=1.0) if beside_bonuses else deviation


@RowKernel
def _discounted_returns(
    start: int, stop: int,
    reward: np.ndarray, ended: np.ndarray, counts: np.ndarray, running: np.ndarray, returns: np.ndarray, gamma: float,
) -> None:  # fmt: skip
    """Write each row's discounted sum of rewards so far into `returns` [T, R]; `running` [R] is where it stands.

    Steps that do not count leave it as it is; after an episode's last step it begins again at 0.
    """
    for t in range(reward.shape[0]):
        for n in range(start, stop):
            if counts[t, n]:
                running[n] = running[n] * gamma + reward[t, n]
            returns[t, n] = running[n]
            if counts[t, n] and ended[t, n]:
                running[n] = 0.0
