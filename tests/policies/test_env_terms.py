"""Acting: `policy.predict` in the terms of an env, exactly as a pool in training would have it, and `policy.act`."""

import re
from collections import deque

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import scramjet
from scramjet.adapters.env_spaces import env_spaces
from scramjet.adapters.gymnasium.pool import SerialPool
from scramjet.engine import FrameStackPool, NativePool
from scramjet.errors import ConfigError, PredictError
from scramjet.policies import Policy, PolicyConfig, default_network
from scramjet.training.config.run_config import EvaluationConfig, RunConfig
from scramjet.training.evaluator import Player
from tests.helpers import ROOT
from tests.helpers.choosing import choosing_world
from tests.helpers.memory_training import make_policy

pytestmark = pytest.mark.usefixtures("one_thread")


class Odd(gymnasium.Env):
    """Observes a bit of everything, in the forms that envs use; says which actions it was given."""

    observation_space = spaces.Dict(
        {
            "pair": spaces.Tuple([spaces.Discrete(4, start=-1), spaces.Box(-9, 9, (2,), np.float64)]),
            "flags": spaces.MultiBinary(3),
            "place": spaces.MultiDiscrete([3, 5], start=[2, 7]),
            "text": spaces.Text(9),
        }
    )
    action_space = spaces.MultiDiscrete([3, 2], start=[10, 5], dtype=np.int32)

    shown = taken = None

    def __init__(self, observation_space=observation_space, action_space=action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(self.np_random.integers(2**31).item())
        self.steps, self.shown = 0, self.observation_space.sample()
        return self.shown, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps, self.taken, self.shown = self.steps + 1, action, self.observation_space.sample()
        return self.shown, 1.0, self.steps >= 5, False, {}


def policy_for(observation_space, action_space, **settings):
    """A policy away from uniform."""
    config = PolicyConfig(hidden=(8,), **settings)
    torch.manual_seed(0)
    policy = Policy(default_network(observation_space, action_space, config), observation_space, action_space, config)
    with torch.no_grad():
        for weight in policy.network.actor_head.parameters():
            weight.mul_(50)
    return policy.eval()


def pool_of(make_env, num_envs, num_frames):
    pool = SerialPool("odd", make_env, num_envs)
    pool.env = None
    return pool if num_frames == 1 else FrameStackPool(pool, num_frames)


@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("num_frames", [1, 3])
def test_predict_acts_step_by_step_as_the_policy_does_on_a_pool(memory, num_frames):
    envs = []
    pool = pool_of(lambda: envs.append(Odd()) or envs[-1], 2, num_frames)
    policy = policy_for(pool.observation_space, pool.action_space, memory=memory, memory_size=8)
    policy.env_spaces = env_spaces(pool)
    out, alone, together, begins, chosen = pool.reset(3), [None, None], None, [True, True], set()
    memories = policy.initial_state(2) if memory else None
    for _ in range(12):
        by_pool = policy.act(out.obs, memories).numpy()
        shown = [env.shown for env in envs]
        ours = [policy.predict(shown[i], None if begins[i] else alone[i]) for i in range(2)]
        batch, together = policy.predict(shown, together, episode_start=begins)
        out, alone = pool.step(by_pool), [state for _, state in ours]
        begins = out.terminated | out.truncated
        for i, env in enumerate(envs):
            assert ours[i][0].dtype == batch.dtype == np.int32
            assert ours[i][0].tolist() == batch[i].tolist() == env.taken.tolist()
            chosen.add(tuple(env.taken.tolist()))
        if memory:
            memories[torch.from_numpy(begins)] = 0
    assert len(chosen) > 1  # else nothing was told apart
    pool.close()


NO_EVALUATION = EvaluationConfig(every=0, final_episodes=0)
NUMBERS = spaces.Box(-5, 5, (3,), np.float32)


def test_one_observation_or_a_batch_is_taken_in_the_form_that_envs_give():
    for space, one, batch in (
        (NUMBERS, [1, 2, 3], [[1, 2, 3], [3, 2, 1]]),
        (NUMBERS, np.array([1.0, 2.0, 3.0]), np.ones((2, 3), np.float64)),
        (NUMBERS, torch.ones(3), torch.ones(2, 3)),
        (spaces.Box(0, 255, (2, 8, 8), np.uint8), deque([np.zeros((8, 8))] * 2), np.zeros((2, 2, 8, 8), np.uint8)),
        (spaces.Discrete(4), 3, np.array([0, 3])),
        (spaces.Discrete(4), np.int64(3), [0, 3]),
        (spaces.Box(0, 1, (1,)), 0.5, [[0.5], [0.1]]),
        (spaces.Box(0, 1, ()), 0.5, [0.5, 0.1]),
        (spaces.MultiBinary(2), [True, False], np.ones((2, 2), np.int8)),
        (spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)})}), {"a": {"b": 1}}, {"a": {"b": np.array([0, 1])}}),
    ):
        policy = policy_for(space, spaces.Discrete(3, start=5))
        single, state = policy.predict(one)
        assert state is None
        assert isinstance(single, np.int64)
        assert 5 <= single <= 7
        actions, _ = policy.predict(batch)
        assert (actions.shape, actions.dtype) == ((2,), np.int64)


def test_actions_of_a_box_have_its_type_and_stay_within_bounds_that_32_bits_round_up():
    box = spaces.Box(-0.1, 0.1, (2,), np.float64)
    pool = SerialPool("env", lambda: Odd(NUMBERS, box), 1)
    policy = policy_for(pool.observation_space, pool.action_space)
    policy.env_spaces = env_spaces(pool)
    with torch.no_grad():
        policy.network.actor_head.mean.bias.fill_(1e6)
    action, _ = policy.predict([0, 0, 0])
    assert action.dtype == np.float64
    assert action.tolist() == [0.1, 0.1]
    pool.reset(0)
    pool.step(policy.act(np.zeros((1, 3), np.float32)).numpy())  # the env refuses what is outside its space
    pool.close()


def test_drawn_actions_follow_torchs_seed_and_masks_are_kept_to():
    policy = policy_for(NUMBERS, spaces.Discrete(3))
    obs, mask = np.ones((200, 3)), np.tile([1, 0, 1], (200, 1))
    drawn = []
    for _ in range(2):
        torch.manual_seed(7)
        drawn.append(policy.predict(obs, mask=mask, deterministic=False)[0])
    assert np.array_equal(*drawn)
    assert set(drawn[0]) == {0, 2}
    for legal in range(3):
        assert policy.predict(obs[0], mask=np.arange(3) == legal)[0] == legal


def test_a_state_that_was_given_is_never_changed():
    policy = policy_for(NUMBERS, spaces.Discrete(3), memory="gru", memory_size=4)
    _, first = policy.predict([1, 2, 3])
    kept = first.memory.clone()
    again = [policy.predict([3, 2, 1], first)[1].memory for _ in range(2)]
    assert torch.equal(first.memory, kept)
    assert torch.equal(*again)
    assert not torch.equal(again[0], kept)


def assert_refused(policy, words, obs=(1, 2, 3), **given):
    with pytest.raises(PredictError, match=re.escape(words)):
        policy.predict(obs, **given)


def test_what_does_not_fit_is_told_with_what_was_expected():
    policy = policy_for(NUMBERS, spaces.Discrete(3))
    for given, words in (
        (dict(obs=[1, 2]), "observation is int64 [2]; expected float32 [3], or [batch, 3] for a batch"),
        (dict(obs=[[1], [1, 2]]), "expected numbers for float32 [3]"),
        (dict(obs="left"), "observation is 'left' (str); expected numbers"),
        (dict(obs=[1, 1e300, 2]), "observation holds 1e+300 in float64; expected numbers that float32 holds"),
        (dict(obs=[1, np.nan, 2]), "observation holds nan; expected finite numbers"),
        (dict(obs=np.zeros((0, 3))), "the same, at least one"),
        (dict(mask=[1, 1]), "the mask is list of 2: [1, 1]; expected [3] of truth values"),
        (dict(obs=np.zeros((2, 3)), mask=[[1, 1, 1]]), "expected [2, 3] of truth values"),
        (dict(mask=[0.5, 1, 1]), "or of 0 and 1"),
        (dict(obs=np.zeros((2, 3)), mask=[[1, 0, 0], [0, 0, 0]]), "allows no choice in row 1"),
        (dict(state=1), "this policy has no memory, and state is int; give state=None"),
    ):
        assert_refused(policy, words, **given)
    for space, obs, words in (
        (spaces.Discrete(3, start=2), 5, "observation holds 5; expected choices from 2 to 4"),
        (spaces.Discrete(3), 1.5, "observation holds 1.5 in float64; expected numbers that int64 holds"),
        (spaces.Box(0, 255, (2,), np.uint8), [0.5, 1], "expected numbers that uint8 holds"),
        (spaces.Dict({"a": NUMBERS}), {"b": 1}, "observation is a dict of b and has no 'a'"),
        (spaces.Dict({"a": NUMBERS}), {"a": [1]}, "observation['a'] is int64 [1]; expected float32 [3]"),
    ):
        assert_refused(policy_for(space, spaces.Discrete(2)), words, obs)
    assert_refused(policy_for(NUMBERS, spaces.Box(0, 1, (1,))), "are not masked; leave it out", mask=[1])


def test_a_state_that_does_not_fit_is_told():
    policy = policy_for(NUMBERS, spaces.Discrete(3), memory="gru", memory_size=4)
    _, state = policy.predict([1, 2, 3])
    for given, words in (
        (dict(state=torch.zeros(1, 4)), "state is Tensor; expected what predict returned"),
        (dict(obs=np.zeros((2, 3))), "state has 1 rows and the observation 2"),
        (dict(episode_start=[True, False]), "episode_start is bool [2]; expected 1 truth value, one for each"),
    ):
        assert_refused(policy, words, **{"state": state, **given})


@pytest.mark.rest
def test_the_page_on_using_policies_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for env, memory in (("cartpole", None), ("gym:Blackjack-v1", None), ("memory", "gru"), ("maze", None)):
        config = RunConfig(
            env=env, num_envs=2, num_steps=8, total_timesteps=16, device="cpu", eval=NO_EVALUATION,
            policy=PolicyConfig(hidden=(8,), memory=memory, memory_size=8),
        )  # fmt: skip
        scramjet.train(config, display="quiet")
    page = (ROOT / "docs/using-policies.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["env"].action_space.contains(names["action"])


def test_a_checkpoint_alone_plays_an_env_of_others_with_memory_and_stacked_frames(tmp_path):
    policy = PolicyConfig(hidden=(8,), memory="gru", memory_size=8)
    config = RunConfig(
        num_envs=2, num_steps=8, total_timesteps=16, frame_stack=2, policy=policy, device="cpu", num_workers=0,
        eval=NO_EVALUATION,
    )  # fmt: skip
    result = scramjet.train(config, env=Odd, runs_dir=tmp_path, display="quiet")
    loaded = scramjet.load_policy(result.run_path)
    env, states = Odd(), [None, None]
    obs, _ = env.reset(seed=1)
    for _ in range(4):
        action, states[0] = result.policy.predict(obs, states[0])
        same, states[1] = loaded.predict(obs, states[1])
        assert action.tolist() == same.tolist()
        obs = env.step(action)[0]


# --- acting with a memory ----------------------------------------------------------------------------------------


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
