"""A short game by the interpreted rules and the policy in torch, for a page to check itself against."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from scramjet.engine.actions import random_actions
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.transition import Transition
from scramjet.engine.trees import leaves, map_leaves
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.envs.api import Env
from scramjet.policies.policy import Policy

NUM_STEPS = 40
_PERIOD = 97


def recorded_game(env: Env, policy: Policy, *, seed: int = 0, num_steps: int = NUM_STEPS) -> dict[str, Any]:
    """Random legal actions, what the players saw, and what the policy thought of it; for JSON."""
    pool = NativePool(env, 1, backend="interpreted")
    seeds, random = EpisodeSeed.of(seed, "page"), np.random.default_rng(seed)
    out = pool.reset(seeds)
    state = torch.zeros(pool.num_players, policy.state_size)  # a memory for each player
    steps = []
    for _ in range(num_steps):
        step = {"record": _record_sum(pool), "players": _players(pool, policy, out, state)}
        actions = random_actions(pool, out, random)
        step["actions"] = actions.tolist()
        out = pool.step(actions)
        step["rewards"] = out.reward.ravel().tolist()
        step["terminated"], step["truncated"] = out.terminated.tolist(), out.truncated.tolist()
        if pool.states()["_steps"][0] == 0:  # another episode has begun
            state.zero_()
        steps.append(step)
    return {"key": [seeds.key & 0xFFFFFFFF, seeds.key >> 32 & 0xFFFFFFFF], "steps": steps}


def _players(pool: NativePool, policy: Policy, out: Transition, state: torch.Tensor) -> list[dict[str, Any]]:
    """What those who act see, and what the policy answers."""
    seen = []
    for row in range(pool.num_rows):
        if pool.played_by is PlayedBy.AGENTS and not out.turn[row]:
            continue
        player = int(out.turn[0]) if pool.played_by is PlayedBy.SEATS else row
        obs = map_leaves(lambda leaf, row=row: torch.from_numpy(leaf[row : row + 1].copy()), out.obs)
        with torch.inference_mode():
            output = policy(obs, state[player : player + 1] if policy.state_size else None)
        if output.state is not None:
            state[player] = output.state[0]
        numbers = [leaf[row].ravel().astype(np.float64) for leaf in leaves(out.obs)]
        mask = _weighted_sum(out.mask[row].astype(np.float64)) if out.mask.shape[1] else None
        answer = {"logits": output.logits[0].tolist(), "value": float(output.value[0])}
        seen.append({"player": player, "obs": _weighted_sum(np.concatenate(numbers)), "mask": mask, **answer})
    return seen


def _record_sum(pool: NativePool) -> float:
    state = pool.states()[0]
    names = [name for name in state.dtype.names if name != "_seed"]
    return _weighted_sum(np.concatenate([np.ravel(state[name]).astype(np.float64) for name in names]))


def _weighted_sum(values: np.ndarray) -> float:
    """As `weightedSum` in checking.js."""
    return float(np.sum(values * (np.arange(len(values)) % _PERIOD + 1)))
