"""The learner of Gumbel AlphaZero: the policy follows the search's improved policy, the value what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from scramjet.algorithms.alphazero import policy_loss
from scramjet.algorithms.config import AlphaZeroConfig, PPOConfig
from scramjet.algorithms.ppo import explained_variance, value_loss
from scramjet.engine.trees import map_leaves
from scramjet.executors.executor import Executor
from scramjet.policies.categorical import mask_logits
from scramjet.search.tree import TreeResult, TreeSearch
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.search.learner import SearchLearner
from scramjet.training.search.player import Findings
from scramjet.training.search.replay import Replay, num_rollouts_kept
from scramjet.training.search.seats import lambda_returns


@dataclass(slots=True)
class TreeFindings(Findings[TreeResult]):
    """What tree searches found before each step."""

    policy: Tensor  # [T, N, A], the improved policy
    logits: Tensor  # [T, N, A], the network's own

    @classmethod
    def allocate(cls, search: TreeSearch, num_steps: int) -> TreeFindings:
        """Room for the findings of `num_steps` searches."""
        shape = (num_steps, search.num_roots, search.policy.distribution.num_inputs)
        return cls(torch.zeros(shape, device=search.device), torch.zeros(shape, device=search.device))

    def is_finite(self) -> bool:
        return bool(torch.isfinite(self.policy.sum()))

    def keep(self, t: int, result: TreeResult) -> None:
        self.policy[t] = result.policy
        self.logits[t] = result.logits


@dataclass(slots=True)
class TreeSamples:
    """The replay of AlphaZero: T steps of L sequences, each a sample."""

    obs: Any  # [T, L, *obs_shape]
    mask: Tensor | None  # [T, L, mask_size] bool
    policy: Tensor  # [T, L, A], the target of the policy
    returns: Tensor  # [T, L], the target of the value


class AlphaZeroLearner(SearchLearner[TreeSamples]):
    """Updates a policy by Gumbel AlphaZero (Danihelka et al. 2022)."""

    NAMES: ClassVar = ("policy_loss", "value_loss", "entropy", "grad_norm")

    def __init__(
        self,
        executor: Executor,
        config: PPOConfig,
        alphazero: AlphaZeroConfig,
        rollout: Rollout,
        search: TreeSearch,
        *,
        total_steps: int,
        seed: int,
    ) -> None:
        num_samples = rollout.log_prob.numel()
        like = _record_of(rollout, rollout.log_prob)
        num_rollouts = num_rollouts_kept(alphazero.replay_size, num_samples)
        replay = Replay(like, num_rollouts, "lower --num-envs or --alphazero.replay-size")
        super().__init__(executor, config, rollout, replay, search, total_steps=total_steps, seed=seed)
        gae_lambda = 1.0 if alphazero.value_target == "result" else config.gae_lambda
        self._decay = {"gamma": config.gamma, "gae_lambda": gae_lambda}
        size = num_samples // self.num_minibatches
        self._steps, self._numbers = torch.zeros(2, size, dtype=torch.int64, device=self.policy.device).unbind()
        self._num_steps = rollout.num_steps
        self._explained = torch.zeros((), device=self.policy.device)

    def record_of(self, rollout: Rollout) -> TreeSamples:
        returns = lambda_returns(
            self.learned_reward(rollout), rollout.value, rollout.seat, rollout.terminated, rollout.truncated,
            rollout.final_value, **self._decay,
        )  # fmt: skip
        self._explained = explained_variance(rollout.value[:-1].flatten(), returns.flatten())
        return _record_of(rollout, returns)

    def _draw(self) -> None:
        size, generator = self._steps.shape, self._generator
        torch.randint(self._num_steps, size, generator=generator, out=self._steps)
        torch.randint(self.replay.num_kept, size, generator=generator, out=self._numbers)

    def _gradient_step(self) -> Tensor:
        batch = self.replay.samples(self._steps, self._numbers)
        output = self.policy(batch.obs)
        legal = mask_logits(output.logits, batch.mask)
        policy_term = policy_loss(legal, batch.policy)
        value_term = value_loss(output.value, output.value, batch.returns, clip=None)
        norm = self._take_step(policy_term + self.config.value_coef * value_term)
        with torch.no_grad():
            entropy = _entropy(torch.log_softmax(legal, -1))
        return torch.stack([policy_term.detach(), value_term.detach(), entropy, norm])

    def _findings(self, rollout: Rollout) -> dict[str, Tensor]:
        found: TreeFindings = rollout.findings
        own = torch.log_softmax(mask_logits(found.logits, None if rollout.mask is None else rollout.mask[:-1]), -1)
        searched = found.policy.clamp(min=1e-30).log()
        return {
            "explained_variance": self._explained,
            "search/kl": (found.policy * (searched - own)).sum(-1).mean(),
            "search/changed": (found.policy.argmax(-1) != own.argmax(-1)).float().mean(),
        }


def _entropy(log_probs: Tensor) -> Tensor:
    """The mean entropy of distributions given by log-probabilities [..., A], a scalar."""
    return -(log_probs.exp() * log_probs).sum(-1).mean()


def _record_of(rollout: Rollout, returns: Tensor) -> TreeSamples:
    return TreeSamples(
        obs=map_leaves(lambda leaf: leaf[:-1], rollout.obs),
        mask=None if rollout.mask is None else rollout.mask[:-1],
        policy=rollout.findings.policy,
        returns=returns,
    )
