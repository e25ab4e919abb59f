"""Policies with memory that play, and the replay of what they stored."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scramjet.engine.layout import PlayedBy
from scramjet.engine.trees import map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs import Env
from scramjet.executors.choice import choose_executor
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from scramjet.training.rollout.player import RolloutPlayer
from scramjet.training.rollout.rollout import Rollout


def make_policy(env: Env, **shape: Any) -> Policy:
    """A policy whose actions and values hang on what it remembers."""
    config = PolicyConfig(**{"hidden": (8,), "memory": "lstm", "memory_size": 6, "shared_trunk": True} | shape)
    spaces = env.observation_space, env.action_space
    torch.manual_seed(0)
    policy = Policy(default_network(*spaces, config), *spaces, config)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "actor_head" in name and weight.dim() == 2:
                weight.mul_(50)
    return policy


class Recorder(NativePool):
    """A pool that keeps a copy of every step's last observations."""

    def rollout_step(self, actions: Any, out: Any) -> None:
        super().rollout_step(actions, out)
        self.seen.append(map_leaves(np.copy, out.final_obs))

    seen: list[Any]


def play(
    policy: Policy, env: Env, *, num_envs: int, num_steps: int, horizon: int | None, rollouts: int, native: bool = False
) -> Any:
    """A pool played for some rollouts; all of them, each with its last observations."""
    pool = Recorder(env, num_envs, backend="interpreted")
    pool.seen = []
    player = RolloutPlayer(pool, choose_executor(policy, pool, fused=native), num_steps, horizon)
    rollout = player.rollout
    pool.reset(7, out=player.buffers.last)
    generator = torch.Generator().manual_seed(5)
    replay = Replay(pool, policy)
    for _ in range(rollouts):
        pool.seen.clear()
        player.play(generator)
        replay.check(rollout, pool.seen)
    return pool, rollout


class Replay:
    """An oracle: each player's episodes played again, one observation at a time, from a state of zeros."""

    def __init__(self, pool: NativePool, policy: Policy) -> None:
        self.pool, self.policy = pool, policy
        self.by_seats = pool.played_by is PlayedBy.SEATS
        self.seats = pool.num_players if self.by_seats else 1
        self.states: dict[tuple[int, int], Tensor] = {}
        self.num_cut = 0

    def state(self, row: int, seat: int) -> Tensor:
        return self.states.get((row, seat), torch.zeros(1, self.policy.state_size))

    def value(self, obs: Any, row: int, seat: int) -> float:
        return float(self.policy(obs, self.state(row, seat)).value)

    @torch.no_grad()
    def check(self, rollout: Rollout, last_seen: list[Any]) -> None:
        for t, row in itertools.product(range(rollout.num_steps), range(self.pool.num_rows)):
            if rollout.alive is not None and not rollout.alive[t, row]:
                continue
            seat = int(rollout.seat[t, row]) if self.by_seats else 0
            output = self.policy(self.at(rollout.obs, t, row), self.state(row, seat))
            mask = None if rollout.mask is None else rollout.mask[t, row : row + 1]
            action = rollout.action[t, row : row + 1]
            log_prob, _ = self.policy.distribution.log_prob_and_entropy(output.logits, action, mask)
            torch.testing.assert_close(log_prob[0], rollout.log_prob[t, row], atol=2e-5, rtol=1e-4)
            torch.testing.assert_close(output.value[0], rollout.value[t, row], atol=2e-5, rtol=1e-4)
            self.states[row, seat] = output.state
            if rollout.truncated[t, row]:
                self.check_cut(rollout, last_seen[t], t, row)
            if rollout.terminated[t, row] or rollout.truncated[t, row]:
                for each in range(self.seats):
                    self.states.pop((row, each), None)
        for row in range(self.pool.num_rows):
            seat = int(rollout.seat[-1, row]) if self.by_seats else 0
            if rollout.alive is None or rollout.alive[-1, row]:
                value = self.value(self.at(rollout.obs, -1, row), row, seat)
                assert value == pytest.approx(float(rollout.value[-1, row]), abs=2e-5, rel=1e-4)

    def check_cut(self, rollout: Rollout, last_seen: Any, t: int, row: int) -> None:
        """A truncated episode is valued at its own last observation, with what was remembered then; seats' are not."""
        self.num_cut += 1
        stored = float(rollout.final_value[t, row])
        if self.by_seats:
            assert stored == 0.0
            return
        obs = map_leaves(lambda leaf: torch.from_numpy(leaf[row : row + 1]), last_seen)
        value = self.value(obs, row, 0)
        assert value == pytest.approx(stored, abs=2e-5, rel=1e-4)
        assert value != 0.0

    @staticmethod
    def at(obs: Any, t: int, row: int) -> Any:
        return map_leaves(lambda leaf: leaf[t, row : row + 1], obs)


def run_config(world: str, **changes: Any) -> RunConfig:
    return RunConfig(
        env=world, num_envs=4, num_steps=8, num_threads=1, total_timesteps=4 * 8 * 6,
        eval=EvaluationConfig(every=2, episodes=3, final_episodes=3),
        checkpoint=CheckpointConfig(every=1, keep_last_n=None),
        **{"policy": PolicyConfig(hidden=(8,), memory="gru", memory_size=5)} | changes,
    )  # fmt: skip
