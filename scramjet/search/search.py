"""The interface of searches: from the positions of many games at once to better actions, with one policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from scramjet.algorithms.config import PPOConfig
from scramjet.algorithms.reward_scaling import SCALED_CLIP
from scramjet.engine.layout import PlayedBy, allocate_obs
from scramjet.engine.simulator import Branches
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.world_pool import WorldPool
from scramjet.executors.cuda_graphs import Stage, stage
from scramjet.executors.supports import Watched
from scramjet.executors.torch_executor import VALUE_CHUNK
from scramjet.policies.networks import PolicyOutput
from scramjet.policies.policy import Policy

Result = TypeVar("Result", bound="SearchResult")


@dataclass(slots=True)
class SearchResult:
    """What every search gives for N roots; the next search writes over it."""

    action: Tensor  # [N, *action_shape], the action to take, in the form in which policies store actions
    value: Tensor  # [N], the value of the root for whoever is to move
    logits: Tensor  # [N, num_inputs], the policy's own at the root, before any search


@dataclass(frozen=True, slots=True)
class Roots:
    """The positions to search from, in memory that every search reads again."""

    records: Tensor  # uint8 [N, record size]
    obs: Any  # [N, *obs_shape], or nested dicts of such
    mask: Tensor  # [N, mask_size] bool; [N, 0] where the world has no mask
    turn: Tensor  # [N] int8, whose move it is, where seats take turns; else [0]


@dataclass(frozen=True, slots=True)
class Rewards:
    """How rewards of the world become those that the policy's values are made of."""

    gamma: float
    """Discount per step."""
    scale: Tensor  # [1], the factor after clipping: 1 unless rewards are normalized
    clip: float | None = None
    """Bound on the size of a reward, before the scale; None: no bound."""
    scaled_clip: float | None = None
    """Bound on its size after the scale; None: no bound."""

    @classmethod
    def of(cls, config: PPOConfig, scale: Tensor) -> Rewards:
        """Those of a run with this config."""
        return cls(config.gamma, scale, config.reward_clip, SCALED_CLIP if config.normalize_rewards else None)

    def counted(self, reward: Tensor) -> Tensor:
        """Rewards of the world, of any shape, as values count them."""
        scaled = _bounded(reward, self.clip) * self.scale
        return _bounded(scaled, self.scaled_clip)


def _bounded(reward: Tensor, bound: float | None) -> Tensor:
    return reward if bound is None else reward.clamp(-bound, bound)


class Search(ABC, Generic[Result]):
    """Searches from N roots of one world with one policy; memory is allocated once.

    On the GPU a whole search is one CUDA graph. Roots are given by their records, so they need not be the pool's envs:
    the pool lends its kernels and its device.
    """

    is_deterministic = False
    """Whether to choose without exploration: how a trained agent plays; settable between searches on the CPU only."""

    def __init__(self, pool: WorldPool, policy: Policy, num_roots: int, rewards: Rewards) -> None:
        self.pool, self.policy, self.num_roots, self.rewards = pool, policy, num_roots, rewards
        self.device = device = policy.device
        self.has_seats = pool.played_by is PlayedBy.SEATS
        record = pool.state_bytes()
        self.roots = Roots(
            records=torch.zeros(num_roots, record.shape[1], dtype=torch.uint8, device=device),
            obs=map_leaves(
                lambda leaf: torch.from_numpy(leaf).to(device), allocate_obs(pool.observation_space, num_roots)
            ),
            mask=torch.ones(num_roots, pool.mask_size, dtype=torch.bool, device=device),
            turn=torch.zeros(num_roots if self.has_seats else 0, dtype=torch.int8, device=device),
        )
        self._key = torch.zeros(1, dtype=torch.int64, device=device)  # of the random numbers of this search
        self._stage: Stage[Result] = stage("a search", device)
        self._watched = Watched(policy)

    @torch.inference_mode()
    def search(self, records: Tensor, obs: Any, mask: Tensor, turn: Tensor, generator: torch.Generator) -> Result:
        """Search from `records` uint8 [N, record size], which show `obs`, `mask` and `turn`, as `Roots` has them.

        Where no seats take turns, `turn` is not read.

        `generator`, on the policy's device, draws every random number of the search.
        """
        self.roots.records.copy_(records)
        for mine, given in zip(leaves(self.roots.obs), leaves(obs), strict=True):
            mine.copy_(given)
        self.roots.mask.copy_(mask)
        if self.has_seats:
            self.roots.turn.copy_(turn)
        self._key.random_(generator=generator)
        self._draw(generator)
        return self._stage.run(self._search, version=self._watched.version)

    def look_again(self) -> None:
        """Notice whether a callback has changed what the policy is made of; called before each rollout."""
        self._watched.look_again()

    @abstractmethod
    def _draw(self, generator: torch.Generator) -> None:
        """Draw the random numbers of one search into memory that `_search` reads."""

    @abstractmethod
    def _search(self) -> Result:
        """Search from `roots`; recorded on the GPU, so it reads and writes the same memory every time."""

    def _evaluate(self, obs: Any) -> PolicyOutput:
        """The policy's logits [B, num_inputs] and values [B] of observations [B, ...]."""
        outputs = [self.policy.forward(part) for part in self._parts(obs)]
        if len(outputs) == 1:
            return outputs[0]
        return PolicyOutput(*(torch.cat([getattr(output, name) for output in outputs]) for name in ("logits", "value")))

    def _parts(self, obs: Any) -> list[Any]:
        """Observations in parts, on the CPU small enough for activations to stay in cache."""
        num_rows = len(leaves(obs)[0])
        if self.device.type == "cuda" or num_rows <= VALUE_CHUNK:
            return [obs]
        starts = range(0, num_rows, VALUE_CHUNK)
        return [map_leaves(lambda leaf, start=start: leaf[start : start + VALUE_CHUNK], obs) for start in starts]

    def _mask(self, mask: Tensor) -> Tensor | None:
        """A mask as distributions take it: None where the world has none."""
        return mask if mask.shape[1] else None

    def _is_over(self, branches: Branches) -> Tensor:
        """Whether nothing is worth anything after the last step, [B]: where it ended an episode, and in a game of two
        also where the time limit cut it, as learners count it (`training/search/seats.py`)."""
        return branches.terminated | branches.truncated if self.has_seats else branches.terminated

    def _gain(self, branches: Branches, mover: Tensor) -> Tensor:
        """The reward [B] of the last step for the seat `mover` [B] that made it, as the policy's values count it."""
        reward = branches.reward
        if self.has_seats:
            reward = reward.gather(1, mover.long().unsqueeze(1)).squeeze(1)
        return self.rewards.counted(reward)
