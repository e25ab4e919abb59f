"""The learner of SPO: the policy follows the particles that a search left, within bounds that two duals hold."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from scramjet.algorithms.config import PPOConfig, SPOConfig
from scramjet.algorithms.ppo import value_loss
from scramjet.algorithms.spo import kl_loss, policy_loss, temperature_loss
from scramjet.engine.trees import map_leaves, map_optional
from scramjet.errors import CheckpointError
from scramjet.executors.executor import Executor
from scramjet.policies.distributions import Distribution, MultiCategorical
from scramjet.runtime.machine import require_memory
from scramjet.search.particles import ParticleResult, ParticleSearch
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.search.learner import SearchLearner
from scramjet.training.search.player import Findings
from scramjet.training.search.replay import Replay, finite, num_rollouts_kept
from scramjet.training.search.seats import lambda_returns

LESS_MEMORY = "lower --num-envs, --spo.particles or --spo.replay-size"
MIN_DUAL = 1e-6
"""The least value of a dual variable, so that dividing by it stays finite."""


@dataclass(slots=True)
class ParticleFindings(Findings[ParticleResult]):
    """What particles found before each step."""

    root_actions: Tensor  # [T, N, P, *action_shape], first actions of the particles that are left
    weights: Tensor  # [T, N, P], sum to 1
    advantages: Tensor  # [T, N, depth, P], accumulated by each particle at the end of a period
    is_counted: Tensor  # [T, N, depth] bool, where a period between two resamplings ends
    ess: Tensor  # [T, N], effective sample size as a share of P
    improvement: Tensor  # [T, N]

    @classmethod
    def allocate(cls, search: ParticleSearch, num_steps: int, config: SPOConfig) -> ParticleFindings:
        """Room for the findings of `num_steps` searches."""
        size, device, distribution = (num_steps, search.num_roots), search.device, search.policy.distribution
        require_memory(
            4 * num_steps * search.num_branches * (config.depth + 2),
            f"what particles find in a rollout (num_envs={search.num_roots}, num_steps={num_steps}, "
            f"particles={config.particles}, depth={config.depth})",
            LESS_MEMORY,
        )
        shape = (*size, config.particles, *distribution.action_shape)
        return cls(
            root_actions=torch.zeros(shape, dtype=distribution.action_dtype, device=device),
            weights=torch.zeros(*size, config.particles, device=device),
            advantages=torch.zeros(*size, config.depth, config.particles, device=device),
            is_counted=torch.zeros(*size, config.depth, dtype=torch.bool, device=device),
            ess=torch.zeros(size, device=device),
            improvement=torch.zeros(size, device=device),
        )

    def is_finite(self) -> bool:
        return bool(torch.isfinite(self.advantages.sum()))

    def keep(self, t: int, result: ParticleResult) -> None:
        for name in self.__dataclass_fields__:
            getattr(self, name)[t] = getattr(result, name)


@dataclass(slots=True)
class ParticleSequences:
    """The replay of SPO: sequences of T steps, L of them."""

    obs: Any  # [T + 1, L, *obs_shape]
    mask: Tensor | None  # [T + 1, L, mask_size] bool
    seat: Tensor | None  # [T + 1, L] int8
    reward: Tensor  # [T, L], or [T, L, seats]; as the world gave them
    terminated: Tensor  # [T, L] bool
    truncated: Tensor  # [T, L] bool
    final_value: Tensor  # [T, L], of episodes that the time limit cut, by the policy that played
    root_actions: Tensor  # [T, L, P, *action_shape]
    weights: Tensor  # [T, L, P]
    advantages: Tensor  # [T, L, depth, P]
    is_counted: Tensor  # [T, L, depth] bool


class SPOLearner(SearchLearner[ParticleSequences]):
    """Updates a policy by SPO (Macfarlane et al. 2024)."""

    NAMES: ClassVar = (
        "policy_loss", "value_loss", "entropy", "spo/kl", "grad_norm", "explained_variance",
        "spo/temperature_loss", "spo/alpha",
    )  # fmt: skip

    def __init__(
        self,
        executor: Executor,
        config: PPOConfig,
        spo: SPOConfig,
        rollout: Rollout,
        search: ParticleSearch,
        *,
        total_steps: int,
        seed: int,
    ) -> None:
        num_rollouts = num_rollouts_kept(spo.replay_size, rollout.log_prob.numel())
        replay = Replay(_record_of(rollout, rollout.reward), num_rollouts, LESS_MEMORY)
        super().__init__(executor, config, rollout, replay, search, total_steps=total_steps, seed=seed)
        self.spo, self._search = spo, search
        device = self.policy.device
        self.target = copy.deepcopy(self.policy).requires_grad_(requires_grad=False)
        starts = (spo.temperature, spo.alpha)
        raw = [start + math.log(-math.expm1(-start)) for start in starts]  # softplus of these is the start
        self.duals = torch.tensor(raw, device=device, requires_grad=True)  # [2]: temperature eta, alpha
        is_on_gpu = device.type == "cuda"
        self.dual_optimizer = torch.optim.Adam([self.duals], lr=spo.dual_learning_rate, capturable=is_on_gpu)
        num_sequences = max(1, replay.num_sequences // self.num_minibatches)
        self._drawn = torch.zeros(num_sequences, dtype=torch.int64, device=device)
        search.eta.fill_(spo.temperature)

    def record_of(self, rollout: Rollout) -> ParticleSequences:
        if self.reward_scaler is not None:
            self.learned_reward(rollout)  # for its statistics: the replay is scaled by the newest ones
        return _record_of(rollout, rollout.reward)

    def _draw(self) -> None:
        torch.randint(self.replay.num_kept, self._drawn.shape, generator=self._generator, out=self._drawn)

    def _eta_and_alpha(self) -> tuple[Tensor, Tensor]:
        eta, alpha = (softplus(self.duals) + MIN_DUAL).unbind()
        return eta, alpha

    def _gradient_step(self) -> Tensor:
        batch = self.replay.sequences(self._drawn)
        obs = map_leaves(lambda leaf: leaf.flatten(0, 1), batch.obs)
        now = map_leaves(lambda leaf: leaf[:-1].flatten(0, 1), batch.obs)
        mask = map_optional(lambda leaf: leaf[:-1].flatten(0, 1), batch.mask)
        with torch.no_grad():
            target = self.target(obs)
            returns = self._returns(batch, target.value).flatten()  # [B]
        output, distribution = self.policy(now), self.policy.distribution
        actions = batch.root_actions.flatten(0, 1)  # [B, P, ...]
        log_prob = distribution.log_probs(output.logits, actions, mask)
        with torch.no_grad():
            _, entropy = distribution.log_prob_and_entropy(output.logits, actions[:, 0], mask)
        kl = distribution.kl(target.logits[: len(returns)], output.logits, mask)
        eta, alpha = self._eta_and_alpha()
        temperature_term = temperature_loss(
            eta, batch.advantages.flatten(0, 1), batch.is_counted.flatten(0, 1), epsilon=self.spo.epsilon
        )
        penalty, alpha_term = kl_loss(kl, alpha, epsilon_alpha=self.spo.epsilon_alpha)
        policy_term = policy_loss(log_prob, batch.weights.flatten(0, 1))
        value_term = value_loss(output.value, output.value, returns, clip=None)
        norm = self._take_step(policy_term + penalty + self.config.value_coef * value_term)
        self.dual_optimizer.zero_grad()
        (temperature_term + alpha_term).backward()
        self.dual_optimizer.step()
        explained = 1 - (returns - output.value).var(correction=0) / returns.var(correction=0).clamp(min=1e-12)
        terms = (policy_term, value_term, entropy.mean(), kl.mean(), norm, explained, temperature_term, alpha)
        return torch.stack([term.detach() for term in terms])

    def _returns(self, batch: ParticleSequences, value: Tensor) -> Tensor:
        """TD(lambda) returns [T, L] from the target network's values [(T + 1) * L]."""
        reward = self._rewards.counted(batch.reward)
        return lambda_returns(
            reward, value.view(len(reward) + 1, -1), batch.seat, batch.terminated, batch.truncated, batch.final_value,
            gamma=self.config.gamma, gae_lambda=self.config.gae_lambda,
        )  # fmt: skip

    def _after_step(self) -> None:
        """Move the target network towards the network; its normalizer is the same."""
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.policy.parameters()), self.spo.target_rate)

    @torch.no_grad()
    def _learned(self) -> None:
        self._search.eta.copy_(self._eta_and_alpha()[0])
        for mine, given in zip(self.target.buffers(), self.policy.buffers(), strict=True):
            mine.copy_(given)

    def _findings(self, rollout: Rollout) -> dict[str, Tensor]:
        found: ParticleFindings = rollout.findings
        return {
            "search/effective_particles": found.ess.mean(),
            "search/improvement": found.improvement.mean(),
            "spo/temperature": self._search.eta[0].clone(),
        }

    def tensors(self) -> dict[str, Tensor]:
        target = {f"target/{name}": tensor for name, tensor in self.target.state_dict().items()}
        state = self.dual_optimizer.state_dict()["state"].get(0, {})
        moments = {f"spo/dual_{name}": torch.as_tensor(value) for name, value in state.items()}
        return {**super().tensors(), **target, **moments, "spo/duals": self.duals, "spo/eta": self._search.eta}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        super().restore(tensors)
        _check_choices(self.replay.record.root_actions, self.policy.distribution)
        self.target.load_state_dict({name: tensors[f"target/{name}"] for name in self.target.state_dict()})
        with torch.no_grad():
            self.duals.copy_(finite(tensors, "spo/duals", self.duals.shape))
        self._search.eta.copy_(finite(tensors, "spo/eta", self._search.eta.shape))
        if not bool(self._search.eta > 0):
            raise CheckpointError("the checkpoint's spo/eta is not above 0")
        shapes = {"step": torch.Size(()), "exp_avg": self.duals.shape, "exp_avg_sq": self.duals.shape}
        if "spo/dual_step" in tensors:
            groups = self.dual_optimizer.state_dict()["param_groups"]
            state = {0: {name: finite(tensors, f"spo/dual_{name}", shape).clone() for name, shape in shapes.items()}}
            self.dual_optimizer.load_state_dict({"state": state, "param_groups": groups})

    def begin_as_fork(self, tensors: Mapping[str, Tensor]) -> None:
        super().begin_as_fork(tensors)
        self.target.load_state_dict(self.policy.state_dict())


def _check_choices(actions: Tensor, distribution: Distribution) -> None:
    """Raise a CheckpointError for actions [..., *action_shape] that are none of a distribution's choices."""
    if actions.is_floating_point():
        return
    sizes = torch.tensor(distribution.num_inputs, device=actions.device)
    if isinstance(distribution, MultiCategorical):
        sizes = distribution.offsets.diff().to(actions.device)
    if bool(((actions < 0) | (actions >= sizes)).any()):
        raise CheckpointError("the replay in the checkpoint is damaged: it holds actions that the world does not have")


def _record_of(rollout: Rollout, reward: Tensor) -> ParticleSequences:
    found: ParticleFindings = rollout.findings
    return ParticleSequences(
        obs=rollout.obs,
        mask=rollout.mask,
        seat=rollout.seat,
        reward=reward,
        terminated=rollout.terminated,
        truncated=rollout.truncated,
        final_value=rollout.final_value,
        root_actions=found.root_actions,
        weights=found.weights,
        advantages=found.advantages,
        is_counted=found.is_counted,
    )
