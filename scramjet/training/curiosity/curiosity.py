"""Curiosity: bonuses for what is new, their value, and the advantages that the policy learns from them.

The rollout is played and the policy learns as without it. When a rollout is prepared, bonuses of all its steps are
computed at once, and a critic of their own (an MLP on the encoder that policies have, without memory) gives their
advantages, which are added to those of the rewards. After the policy, the bonus and its critic learn from the rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from scramjet.algorithms.advantages import gae
from scramjet.algorithms.curiosity.episodic_memory import EpisodicMemory
from scramjet.algorithms.reward_scaling import RewardScaler
from scramjet.engine.layout import PlayedBy
from scramjet.engine.pool import Pool
from scramjet.engine.privileged import policy_part, policy_space
from scramjet.engine.trees import leaves
from scramjet.executors.cuda_graphs import SideStream, Stage, stage
from scramjet.executors.samples import Minibatches
from scramjet.executors.supports import what_learns
from scramjet.executors.torch_executor import FlatGradients
from scramjet.policies.config import PolicyConfig
from scramjet.policies.observations import lowest_observations
from scramjet.policies.policy import Policy
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.runtime.ranks.moments import joined_over, of_all
from scramjet.training.batches.shuffling import run_length, shuffle_on_gpu
from scramjet.training.batches.targets import BonusAdvantages
from scramjet.training.curiosity.bonus import Bonus, Transitions, mean_of_counted
from scramjet.training.curiosity.config import BonusConfig
from scramjet.training.curiosity.critic import BonusCritic
from scramjet.training.curiosity.networks import adam
from scramjet.training.rollout.rollout import Rollout
from scramjet.training.seeds import own_seed_of

_SHUFFLE_SEED = 0xC0FFEE
MOST_LEARNED = 4096
"""Steps of a minibatch that the bonus learns from. With more envs a gradient step would see more of the same, and what
is new would be known too soon (Burda et al. 2018 keep the number too)."""
MOST_BESIDE = 4096
"""Numbers of an observation up to which the GPU runs the bonus beside its critic."""
METRICS = ("bonus/mean", "bonus/max", "bonus/loss", "bonus/value_loss")
PREFIX = "curiosity/"
"""Of its tensors' names in a checkpoint."""


class Curiosity:
    """Computes the advantages of bonuses, and learns what they depend on."""

    def __init__(
        self,
        bonus: Bonus,
        policy: Policy,
        pool: Pool,
        network: PolicyConfig,
        config: BonusConfig,
        *,
        gae_lambda: float,
        forgets: bool = False,
        seed: int,
        ranks: Ranks = ALONE,
    ) -> None:
        """`network` shapes the critic. `forgets`: rows of rollouts go on with other envs each time."""
        self.config, self._ranks, self._gae_lambda = config, ranks, gae_lambda
        self._device = device = policy.device
        self.bonus = bonus.to(device)
        self.critic = BonusCritic(
            policy, policy_space(pool.observation_space), network, config.learning_rate, may_use_kernels=ranks.is_alone
        )
        self.scaler = RewardScaler(
            pool.num_rows, gamma=config.gamma, clip=torch.inf, device=device, join=partial(joined_over, ranks)
        )
        self._ends = bonus.ends_with_episodes or pool.played_by is PlayedBy.AGENTS
        self._forgets = forgets
        self._modules = nn.ModuleDict({"bonus": self.bonus, "critic": self.critic.network})
        learned = [each for each in self.bonus.parameters() if each.requires_grad]
        self._optimizer = adam(learned, config.learning_rate, device) if learned else None
        self._parameters = [*learned, *self.critic.parameters]
        self._gradients = None if ranks.is_alone else FlatGradients(self._parameters, 2, ranks)
        self.generator = torch.Generator().manual_seed(seed ^ _SHUFFLE_SEED ^ own_seed_of(ranks.rank))
        self._order = torch.empty(0, dtype=torch.int64, device=device)
        self._learning: Stage[Tensor] = stage("what curiosity learns", device)
        seen = lowest_observations(policy_space(pool.observation_space), 1)
        is_small = sum(leaf.numel() for leaf in leaves(seen)) <= MOST_BESIDE
        self._side = SideStream(device, is_used=is_small)  # bonus and critic know nothing of each other
        self._prepared: tuple[Tensor, Tensor] | None = None  # returns [T, R] of bonuses; mean, maximum, `revisited`
        self.revisited: float | None = None
        """Share of the last update's visits that were to what their episode had visited before; None where visits are
        not counted."""

    @torch.no_grad()
    def advantages(self, rollout: Rollout) -> BonusAdvantages:
        """The advantages of a rollout's bonuses; updates the statistics of bonuses."""
        steps = Transitions.of(rollout)
        find, judge = partial(self._find_bonuses, steps), partial(self.critic.values, policy_part(rollout.obs))
        found, value = self._side.run(find, judge)
        ended = steps.ended if self._ends else torch.zeros_like(steps.ended)
        scaled = self.scaler.scale(found, ended, ended, rollout.alive)
        nothing = torch.zeros_like(scaled)
        advantage, returns = gae(
            scaled, value, ended, torch.zeros_like(ended), nothing,
            gamma=self.config.gamma, gae_lambda=self._gae_lambda,
        )  # fmt: skip
        self._prepared = returns, self._numbers_of(found, steps.counts)
        weight = self.config.weight(ends_with_episodes=self.bonus.ends_with_episodes)
        return BonusAdvantages(advantage.mul_(weight), self.config.reward_coef)

    def _find_bonuses(self, steps: Transitions) -> Tensor:
        """The bonuses of a rollout's steps, [T, R]; 0 for those that do not count."""
        if self._forgets:
            self.bonus.forget()
        self.bonus.observe(steps, self._ranks)
        found = self.bonus.bonuses(steps)
        return found if steps.counts is None else torch.where(steps.counts, found, 0.0)

    def _numbers_of(self, found: Tensor, counts: Tensor | None) -> Tensor:
        """Mean and maximum of the bonuses found by all ranks, then `revisited` if visits are counted."""
        revisited = self.bonus.revisited
        numbers = torch.stack(
            [mean_of_counted(found, counts), found.max(), *([] if revisited is None else [revisited])]
        )
        if self._ranks.is_alone:
            return numbers
        weight = torch.full_like(numbers[:1], found.numel()) if counts is None else counts.sum().view(1)
        everyones = of_all(torch.cat([numbers, weight]), self._ranks)
        shares = everyones[:, -1:] / everyones[:, -1].sum().clamp(min=1)
        means = (everyones[:, :-1] * shares).sum(0)
        means[1] = everyones[:, 1].max()
        return means

    def learn(self, rollout: Rollout, num_minibatches: int, *, may_record: bool, version: object) -> Tensor:
        """Learn from a rollout whose advantages were computed before; returns the numbers of `metrics`.

        Does not wait for the GPU. `may_record`: whether that rollout, and its advantages, are in the same memory every
        time; `version` is that of what computed them.
        """
        assert self._prepared is not None
        returns, numbers = self._prepared
        self.critic.begin_update()
        version = version, what_learns(self._modules, self._optimizer)
        losses = []
        for _ in range(self.config.num_epochs):
            minibatches = self._minibatches(returns, num_minibatches)
            epoch = partial(self._epoch, rollout, returns, minibatches)
            loss = self._learning.run(epoch, may_record=may_record, version=version)
            losses.append(loss.clone() if self._learning.is_recorded else loss)
        return torch.cat([numbers[:2], torch.stack(losses).mean(0), numbers[2:]])

    def metrics(self, learned: Tensor) -> dict[str, float]:
        """The metrics by name, from what `learn` returned; what follows them there is `revisited`."""
        numbers = learned.tolist()
        self.revisited = numbers[len(METRICS)] if len(numbers) > len(METRICS) else None
        return dict(zip(METRICS, numbers, strict=False))

    def _minibatches(self, returns: Tensor, number: int) -> Minibatches:
        number = min(number, returns.numel())
        if self._device.type == "cpu":
            return Minibatches.even(torch.randperm(returns.numel(), generator=self.generator), number)
        if len(self._order) != returns.numel():
            self._order = torch.empty(returns.numel(), dtype=torch.int64, device=self._device)
        shuffle_on_gpu(self._order, self.generator, run_length(returns.numel(), returns.shape[1], number))
        return Minibatches.even(self._order, number)

    def _epoch(self, rollout: Rollout, returns: Tensor, minibatches: Minibatches) -> Tensor:
        """One pass over the rollout; returns the mean losses of the bonus and of its critic, [2]."""
        steps = Transitions.of(rollout)
        rows = []
        for k in range(len(minibatches)):
            rows.append(self._gradient_step(steps, returns, minibatches.units(k)))
        return torch.stack(rows).mean(0)

    def _gradient_step(self, steps: Transitions, returns: Tensor, places: Tensor) -> Tensor:
        """Take a gradient step on the steps at these places [B] of a rollout with returns [T, R]; both losses, [2]."""
        if self._gradients is None:
            for parameter in self._parameters:
                parameter.grad = None
        else:
            self._gradients.clear()
        learn_bonus = partial(self._learn_bonus, steps, places[:MOST_LEARNED])
        learn_value = partial(self.critic.learn, steps, returns, places, self._ranks.size)
        terms = torch.stack(self._side.run(learn_bonus, learn_value))
        if self._gradients is not None:
            terms = self._gradients.add_up(terms / self._ranks.size)
        if self._optimizer is not None:
            self._optimizer.step()
        self.critic.step()
        return terms

    def _learn_bonus(self, steps: Transitions, places: Tensor) -> Tensor:
        """Add this rank's share of the gradient of the bonus on the steps at these places; its loss, a scalar."""
        loss = self.bonus.loss(steps.select(places))
        if loss is None:
            return torch.zeros((), device=self._device)
        (loss if self._ranks.is_alone else loss / self._ranks.size).backward()
        return loss.detach()

    def tensors(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, by name in a checkpoint."""
        found = {f"module/{name}": tensor for name, tensor in self._modules.state_dict().items()}
        state = self.critic.optimizer.state | ({} if self._optimizer is None else self._optimizer.state)
        for i, parameter in enumerate(self._parameters):
            found |= {f"optimizer/{i}/{name}": tensor for name, tensor in state[parameter].items()}
        found |= {"returns": self.scaler.running_return, "moments": self.scaler.moments}
        return {PREFIX + name: tensor for name, tensor in found.items()} | {
            PREFIX + "shuffle": self.generator.get_state()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` gave."""
        self._copy(tensors, list(self.tensors()))
        self.generator.set_state(tensors[PREFIX + "shuffle"].cpu())

    def begin_as_fork(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with what a checkpoint's curiosity has learned, if it was of the same kind; episodes are new ones."""
        of_rows = {PREFIX + "returns", PREFIX + "shuffle"}
        for module_name, module in self._modules.named_modules():
            if isinstance(module, EpisodicMemory):
                of_rows |= {f"{PREFIX}module/{module_name}.{name}" for name in module.state_dict()}
        mine = self.tensors()
        learned = [name for name in mine if name not in of_rows]
        if all(name in tensors and tensors[name].shape == mine[name].shape for name in learned):
            self._copy(tensors, learned)

    @torch.no_grad()
    def _copy(self, tensors: Mapping[str, Tensor], names: list[str]) -> None:
        own = self.tensors()
        for name in names:  # all of them before any is copied
            mine, theirs = own[name], tensors.get(name)
            if theirs is None:
                raise ValueError(f"{name} is missing")
            if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
                kinds = [f"{str(each.dtype)[6:]} {list(each.shape)}" for each in (theirs, mine)]
                raise ValueError(f"{name} is {kinds[0]}, and this run has {kinds[1]}")
            if not bool(theirs.isfinite().all()):
                raise ValueError(f"{name} has numbers that are not finite")
            if name.endswith(("variance", "exp_avg_sq")) and bool((theirs < 0).any()):
                raise ValueError(f"{name} has numbers below 0")
        for name in names:
            own[name].copy_(tensors[name])
