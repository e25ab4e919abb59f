"""Acting with a trained memory: the state is kept in place, per row and per player."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import scramjet
from scramjet.engine.worlds.native_pool import NativePool
from scramjet.errors import ConfigError
from scramjet.training.player import Player
from tests.helpers.choosing import choosing_world
from tests.helpers.memory_training import make_policy

pytestmark = pytest.mark.usefixtures("one_thread")


def test_act_brings_the_state_up_to_date_in_place_and_a_reset_row_plays_as_at_the_beginning():
    pool = scramjet.make("cartpole", num_envs=3)
    policy = make_policy(pool.env)
    out, state = pool.reset(0), policy.initial_state(3)
    obs = torch.from_numpy(out.obs.copy())
    fresh = policy.act(obs, state).clone()
    assert state.abs().sum() > 0
    first = state.clone()
    policy.act(obs, state)
    assert not torch.equal(state, first)
    state[torch.tensor([True, False, True])] = 0
    assert torch.equal(policy.act(obs, state)[[0, 2]], fresh[[0, 2]])
    assert torch.equal(state[[0, 2]], first[[0, 2]])


def test_acting_without_the_state_or_with_something_else_says_what_to_do():
    pool = scramjet.make("cartpole", num_envs=3)
    policy, obs = make_policy(pool.env), pool.reset(0).obs
    with pytest.raises(ConfigError, match=r"has memory: make state = policy.initial_state\(3\)"):
        policy.act(obs)
    for wrong in (torch.zeros(2, policy.state_size), np.ones((3, 2), np.bool_), "state"):
        with pytest.raises(ConfigError, match=r"this policy takes a tensor of float32 \[3, 12\]"):
            policy.act(obs, wrong)


@pytest.mark.parametrize("players", ["one", "agents", "seats"])
def test_a_player_remembers_its_own_episodes_alone(players):
    """Played in a pool of many or alone, an env sees the same actions: no state crosses envs or episodes."""
    env = choosing_world(obs="dict", action="discrete", players=players)
    policy = make_policy(env)
    actions = []
    for num_envs in (1, 4):
        pool = NativePool(env, num_envs, backend="interpreted")
        out, player, taken = pool.reset(3), Player(pool, policy), []
        for _ in range(20):
            action = player.act(out)
            taken.append(action[: pool.num_rows // num_envs].copy())
            out = pool.step(action)
            player.see(out)
        actions.append(np.stack(taken))
    assert np.array_equal(actions[0], actions[1])
