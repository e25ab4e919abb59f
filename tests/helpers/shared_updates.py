"""Updates by several ranks, each from its rows of the rollouts that one rank would learn from."""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from scramjet.algorithms.config import PPOConfig
from scramjet.engine.trees import map_fields
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.executors.executor import Executor
from scramjet.executors.numba_executor import NumbaExecutor
from scramjet.executors.torch_executor import TorchExecutor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.runtime.ranks import ALONE, Ranks
from scramjet.training.learner import Learner
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Rollout
from tests.helpers.choosing import choosing_world
from tests.helpers.thread_ranks import on_ranks


@dataclass
class Learned:
    """What a learner has after some updates."""

    tensors: dict[str, Tensor]  # of the policy, of Adam's moments and of the scaling of rewards
    metrics: list[dict[str, float | None]]  # of each update


@dataclass
class Case:
    """A policy and the rollouts that it played in one process."""

    world: tuple[str, str, str] = ("box", "discrete", "one")
    masked: bool = False
    is_fused: bool = True
    num_envs: int = 8
    num_steps: int = 12
    policy: dict[str, Any] = field(default_factory=dict)
    network: type[nn.Module] | None = None
    is_behind: bool = False
    fixed_shapes: bool = False
    ppo: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        env = choosing_world(*self.world, masked=self.masked)
        shape = PolicyConfig(**{"hidden": (16, 16)} | self.policy)
        given = {"num_epochs": 2, "num_minibatches": 4, "learning_rate": 0.01, "gamma": 0.9}
        self.config = PPOConfig(**given | self.ppo)
        spaces = env.observation_space, env.action_space
        torch.manual_seed(0)
        network = default_network(*spaces, shape) if self.network is None else self.network()
        normalizes = self.config.normalize_observations
        self.start = Policy(network, *spaces, shape, normalize_observations=normalizes)
        pool = NativePool(env, self.num_envs, num_threads=1, backend="interpreted")
        player = RolloutPlayer(pool, TorchExecutor(self.start), self.num_steps, self.config.bptt_horizon)
        pool.reset(100, out=player.buffers.last)
        generator = torch.Generator().manual_seed(5)
        self.rollouts = [_copied(player.play(generator)) for _ in range(2)]

    def executor(self) -> Executor:
        """An executor of a fresh copy of the policy."""
        policy = copy.deepcopy(self.start)
        return NumbaExecutor(policy) if self.is_fused else TorchExecutor(policy)

    def learned_by(self, ranks: Ranks) -> Learned:
        """Learn from the rows of each rollout that are this rank's."""
        size = self.rollouts[0].action.shape[1] // ranks.size
        rows = slice(ranks.rank * size, (ranks.rank + 1) * size)
        parts = [_copied(rollout.part(rows)) for rollout in self.rollouts]
        given = {"total_steps": 10_000, "seed": 3, "is_behind": self.is_behind}
        learner = Learner.for_rollout(parts[0], self.executor(), self.config, **given, ranks=ranks)
        learner.fixed_shapes = self.fixed_shapes
        metrics = [learner.update(learner.prepare(part), 100 * k) for k, part in enumerate(parts)]
        tensors = {name: tensor.clone() for name, tensor in learner.policy.state_dict().items()}
        for number, moments in learner.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{name}": tensor.clone() for name, tensor in moments.items()}
        if learner.reward_scaler is not None:
            tensors["rewards"] = learner.reward_scaler.moments.clone()
        tensors |= {name: tensor.clone() for name, tensor in learner.shared_tensors().items()}
        return Learned(tensors, metrics)

    def learned_together(self, size: int) -> list[Learned]:
        """What each of `size` ranks has learned."""
        return [self.learned_by(ALONE)] if size == 1 else on_ranks(size, self.learned_by)


def _copied(rollout: Rollout) -> Rollout:
    return map_fields(rollout, lambda leaf: leaf.clone(memory_format=torch.contiguous_format))
