"""Frame stacking: what is seen is the last K observations of the same episode, zeros before its start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scramjet
from scramjet.algorithms.ppo import PPOConfig
from scramjet.engine import NativePool
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.random_play import random_actions
from scramjet.engine.trees import leaves
from scramjet.engine.wrappers.frame_stack import FrameStackPool, stacked_space
from scramjet.envs import Box, Dict, Discrete, Env, MultiBinary
from scramjet.errors import ConfigError
from scramjet.policies import PolicyConfig
from scramjet.policies.encoders.images import ImageLayout
from scramjet.training.components import make_evaluator, make_policy
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from tests.helpers import HELPERS
from tests.helpers.player_worlds import Duel, Mortals
from tests.helpers.pool_transitions import BACKENDS, copy
from tests.helpers.pool_worlds import Counter

POOL_WORLDS = HELPERS / "pool_worlds.py"


class Film(Env):
    """A picture and a speed to be stacked, a scene and two flags not to be; lasts 2 to 5 steps, cut at 4."""

    max_episode_steps = 4

    observation_space = Dict(
        {
            "picture": Box(0, 255, (2, 3, 4), np.uint8),
            "inner": Dict({"scene": Discrete(6), "speed": Box(-9.0, 9.0, (2,), np.float32)}),
            "flags": MultiBinary(2),
            "lone": Box(0.0, 99.0, (), np.float32),
        }
    )
    action_space = Discrete(5)
    state = {"length": np.int32, "time": np.int32, "last": np.int32}

    def reset(self, s: Any) -> None:
        s.length = 2 + (s._index + s._episode) % 4

    def step(self, s: Any, action: Any) -> tuple[float, bool]:
        s.time += 1
        s.last = action
        return 1.0 * action, s.time == s.length

    def observe(self, s: Any, obs: Any) -> None:
        for channel in range(2):
            for row in range(3):
                for column in range(4):
                    obs.picture[channel, row, column] = 1 + 100 * channel + 20 * s.time + 5 * row + column
        obs.inner.scene[0] = s.time
        obs.inner.speed[0] = s.last + 1
        obs.inner.speed[1] = -s.length
        obs.flags[0] = s.time % 2
        obs.flags[1] = 1
        obs.lone[0] = 1 + s.time

    def mask(self, s: Any, mask: Any) -> None:
        mask[(s.time + s._index) % 5] = False


def is_stacked(space: Any) -> Any:
    """Which leaves of a space are stacked, as the contract says: those that are a Box."""
    return [isinstance(part, Box) for part in leaves(spaces_of(space))]


def spaces_of(space: Any) -> Any:
    return {name: spaces_of(part) for name, part in space.spaces.items()} if isinstance(space, Dict) else space


def expected_stack(history: list[np.ndarray], num_frames: int) -> np.ndarray:
    """The last `num_frames` of one episode's observations, joined along the first axis, the newest last."""
    blank = [np.zeros_like(history[-1])] * num_frames
    return np.concatenate([*blank, *history][-num_frames:])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("num_frames", [1, 2, 3, 7])
@pytest.mark.parametrize("world", [Counter, Film, Mortals])
def test_observations_are_the_last_few_of_the_same_episode_with_zeros_before_its_start(
    world: type[Env], num_frames: int, backend: str
) -> None:
    plain = NativePool(world(), 5, num_threads=1, backend=backend)
    stacked = FrameStackPool(NativePool(world(), 5, num_threads=1, backend=backend), num_frames)
    stacks, rows, random = is_stacked(plain.observation_space), plain.num_rows, np.random.default_rng(0)
    out, seen = plain.reset(9), stacked.reset(9)
    histories = [[[leaf[row].copy()] for leaf in leaves(out.obs)] for row in range(rows)]
    ended = begun = 0
    for _ in range(30):
        check_shown(seen.obs, histories, stacks, num_frames)
        np.testing.assert_array_equal(seen.mask, out.mask)
        np.testing.assert_array_equal(seen.turn, out.turn)
        actions = random_actions(plain, out, random)
        out, seen = plain.step(actions.copy()), stacked.step(actions.copy())
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(seen, name), getattr(out, name))
        is_new = np.repeat(plain.states()["_steps"] == 0, rows // 5)
        for row in range(rows):
            if out.terminated[row] or out.truncated[row]:
                last = [
                    [*past, leaf[row].copy()] for past, leaf in zip(histories[row], leaves(out.final_obs), strict=True)
                ]
                check_row(seen.final_obs, row, last, stacks, num_frames)
                ended += 1
            for past, leaf in zip(histories[row], leaves(out.obs), strict=True):
                if is_new[row]:
                    past.clear()
                past.append(leaf[row].copy())
            begun += bool(is_new[row])
    assert ended >= 30
    assert begun >= 30
    for name in ("returns", "lengths", "env_ids", "players"):
        np.testing.assert_array_equal(getattr(stacked.pool.episodes(), name), getattr(plain.episodes(), name))


def check_shown(obs: Any, histories: list, stacks: list[bool], num_frames: int) -> None:
    for row, past in enumerate(histories):
        check_row(obs, row, past, stacks, num_frames)


def check_row(obs: Any, row: int, past: list, stacks: list[bool], num_frames: int) -> None:
    for stacks_leaf, leaf, frames in zip(stacks, leaves(obs), past, strict=True):
        expected = expected_stack(frames, num_frames) if stacks_leaf else frames[-1]
        np.testing.assert_array_equal(leaf[row], expected)
        assert leaf.dtype == frames[-1].dtype


def test_an_agent_that_dies_keeps_its_frames_until_all_begin_anew() -> None:
    pool = FrameStackPool(NativePool(Mortals(), 1, backend="interpreted"), 3)
    pool.reset(EpisodeSeed(0, first_env=1))  # agents 0, 1 and 2 die at the ages 2, 3 and 4
    ages = []
    for actions in ([2, 2, 1], [2, 1, 1], [1, 1, 2], [2, 2, 1]):
        out = pool.step(np.array(actions))
        ages.append(out.obs["me"][:, ::3].tolist())
    assert ages == [[[0, 0, 1]] * 3, [[0, 1, 2]] * 3, [[1, 2, 3]] * 3, [[0, 0, 0]] * 3]
    assert out.final_obs["me"][2, ::3].tolist() == [2, 3, 4]
    assert out.turn.all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", [Counter, Film, Mortals])
@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_restored_snapshot_of_stacked_frames_goes_on_exactly(world: type[Env], backend: str, is_fresh: bool) -> None:
    def make() -> FrameStackPool:
        return FrameStackPool(NativePool(world(), 4, num_threads=1, backend=backend), 3)

    pool, random = make(), np.random.default_rng(1)
    out = pool.reset(2)
    for _ in range(11):
        out = pool.step(random_actions(pool, out, random))
    last, snapshot = copy(out), pool.snapshot()
    before = {name: array.tobytes() for name, array in snapshot.items()}
    actions, after = [], []
    for _ in range(12):
        actions.append(random_actions(pool, out, random))
        out = pool.step(actions[-1].copy())
        after.append(copy(out))
    assert {name: array.tobytes() for name, array in snapshot.items()} == before
    pool = make() if is_fresh else pool
    restored = pool.restore(snapshot)
    for name in ("obs", "mask", "turn"):
        for ours, theirs in zip(leaves(getattr(restored, name)), leaves(getattr(last, name)), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    for row, expected in zip(actions, after, strict=True):
        out = pool.step(row.copy())
        for ours, theirs in zip(leaves(out.obs), leaves(expected.obs), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(out.reward, expected.reward)
        ended = out.terminated | out.truncated
        for ours, theirs in zip(leaves(out.final_obs), leaves(expected.final_obs), strict=True):
            np.testing.assert_array_equal(ours[ended], theirs[ended])


def test_a_reset_forgets_the_frames_of_the_play_before() -> None:
    pool = FrameStackPool(NativePool(Counter(), 3, backend="interpreted"), 4)
    first = pool.reset(6).obs.copy()
    for _ in range(2):
        pool.step(np.zeros(3, np.int64))
    np.testing.assert_array_equal(pool.reset(6).obs, first)


def test_results_of_stacked_frames_are_written_into_the_arrays_given_and_kept_there() -> None:
    pool, twin = (FrameStackPool(NativePool(Film(), 3, backend="interpreted"), 2) for _ in range(2))
    outs, random = [pool.allocate() for _ in range(8)], np.random.default_rng(0)
    assert pool.reset(4, out=outs[0]) is outs[0]
    expected = [copy(twin.reset(4))]
    for out in outs[1:]:
        actions = random_actions(twin, expected[-1], random)
        assert pool.step(actions.copy(), out=out) is out
        expected.append(copy(twin.step(actions.copy())))
    for out, theirs in zip(outs, expected, strict=True):
        for name in ("obs", "mask", "reward", "terminated", "truncated"):
            for one, other in zip(leaves(getattr(out, name)), leaves(getattr(theirs, name)), strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("own_arrays", [True, False])
def test_the_views_of_a_stacked_pool_are_what_was_last_shown(own_arrays: bool) -> None:
    pool = FrameStackPool(NativePool(Counter(), 3, backend="interpreted"), 2)
    out = None if own_arrays else pool.allocate()
    shown = pool.reset(1, out=out)
    np.testing.assert_array_equal(pool.views(), shown.obs)
    shown = pool.step(np.zeros(3, np.int64), out=out)
    assert shown.obs.any()
    np.testing.assert_array_equal(pool.views(), shown.obs)


# --- spaces ----------------------------------------------------------------------------------------------------------


def test_the_space_of_stacked_frames_repeats_each_box_along_its_first_axis_and_leaves_the_rest() -> None:
    space = stacked_space(Film.observation_space, 3)
    assert space["picture"] == Box(0, 255, (6, 3, 4), np.uint8)
    assert space["inner"]["speed"] == Box(-9.0, 9.0, (6,), np.float32)
    assert space["lone"] == Box(0.0, 99.0, (3,), np.float32)
    assert (space["inner"]["scene"], space["flags"]) == (Discrete(6), MultiBinary(2))
    uneven = Box(np.array([-1.0, -2.0], np.float32), np.array([3.0, 4.0], np.float32))
    assert stacked_space(uneven, 2).low.tolist() == [-1, -2, -1, -2]
    assert stacked_space(uneven, 2).high.tolist() == [3, 4, 3, 4]


def test_what_a_stacked_pool_shows_has_the_shapes_and_types_of_its_space() -> None:
    pool = FrameStackPool(NativePool(Film(), 2, backend="interpreted"), 3)
    out = pool.reset(0)
    for leaf, part in zip(leaves(out.obs), leaves(spaces_of(pool.observation_space)), strict=True):
        assert leaf.shape == (2, *(part.shape or (1,)))
        assert leaf.dtype == part.dtype
    assert (pool.num_envs, pool.num_rows, pool.num_players, pool.mask_size) == (2, 2, 1, 5)
    assert pool.played_by is PlayedBy.ONE


class Shaped(Counter):
    """Counter with another observation space, never played."""

    def observe(self, s: Any, obs: Any) -> None:
        pass


def shaped(space: Any) -> NativePool:
    return NativePool(type("Shaped", (Shaped,), {"observation_space": space})(), 2, backend="interpreted")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NativePool(Duel(), 2, backend="interpreted"), r"frame_stack=2, but in Duel seats take turns"),
        (
            lambda: shaped(Discrete(4)),
            r"frame_stack=2, but Shaped has no Box observation to stack; use --frame-stack 1",
        ),
        (lambda: shaped(Dict({"a": MultiBinary(3)})), r"Shaped has no Box observation to stack"),
        (
            lambda: shaped(Box(0, 255, (84, 84, 3), np.uint8)),
            r"Shaped.observation_space \[84, 84, 3\] has its channels",
        ),
        (
            lambda: shaped(Dict({"eye": Box(0, 1, (9, 5, 1), np.uint8)})),
            r"space\.eye \[9, 5, 1\] has its channels last",
        ),
    ],
    ids=["seats", "a choice", "flags", "channels last", "channels last in a Dict"],
)
def test_what_cannot_be_stacked_is_refused_with_the_way_out(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FrameStackPool(make(), 2)


@pytest.mark.parametrize("shape", [(3, 84, 84), (1, 5, 5), (4, 4, 4), (2, 6, 6)])
def test_pictures_with_their_channels_first_are_stacked_and_still_read_so_by_a_policy(shape: tuple[int, ...]) -> None:
    pool = FrameStackPool(shaped(Box(0, 1, shape, np.uint8)), 4)
    assert pool.observation_space.shape == (4 * shape[0], *shape[1:])
    layout = ImageLayout.of(pool.observation_space)
    assert (layout.channels, layout.height, layout.width) == (4 * shape[0], *shape[1:])


@pytest.mark.parametrize("num_frames", [0, -1])
def test_fewer_frames_than_one_are_refused(num_frames: int) -> None:
    with pytest.raises(ConfigError, match=rf"frame_stack={num_frames} must be at least 1"):
        FrameStackPool(NativePool(Counter(), 2, backend="interpreted"), num_frames)


def test_all_rows_of_a_stacked_pool_can_be_sent_and_some_cannot() -> None:
    pool, twin = (FrameStackPool(NativePool(Counter(), 2, backend="interpreted"), 2) for _ in range(2))
    pool.reset(0)
    twin.reset(0)
    actions = np.ones(2, np.int64)
    with pytest.raises(ConfigError, match="without send"):
        pool.recv()
    with pytest.raises(ConfigError, match="steps all its envs at once: send all rows"):
        pool.send(actions, slice(0, 1))
    pool.send(actions)
    with pytest.raises(ConfigError, match="all rows step already"):
        pool.send(actions)
    with pytest.raises(ConfigError, match="were not sent together"):
        pool.recv(slice(0, 1))
    np.testing.assert_array_equal(pool.recv().transition.obs, twin.step(actions).obs)


def test_arrays_of_another_stacked_pool_are_refused() -> None:
    pool, other = (FrameStackPool(NativePool(Counter(), 2, backend="interpreted"), frames) for frames in (2, 3))
    pool.reset(0)
    for call in (lambda out: pool.step(np.zeros(2, np.int64), out=out), lambda out: pool.reset(1, out=out)):
        with pytest.raises(ConfigError, match=r"pool\.allocate"):
            call(other.allocate())


# --- training --------------------------------------------------------------------------------------------------------


def config_of(world: str, **changes: Any) -> RunConfig:
    settings = {
        "num_envs": 4, "num_steps": 8, "num_threads": 1, "total_timesteps": 32 * 4, "frame_stack": 3,
        "ppo": PPOConfig(num_minibatches=2, learning_rate=0.005, normalize_observations=True),
        "policy": PolicyConfig(hidden=(8,)), "checkpoint": CheckpointConfig(every=0),
        "eval": EvaluationConfig(every=1, episodes=2, final_episodes=0),
    }  # fmt: skip
    return RunConfig(env=world, **settings | changes)


def test_the_policy_of_a_config_sees_the_stacked_space() -> None:
    config = config_of(f"{POOL_WORLDS}:Counter")
    policy = make_policy(config)
    pool = make_evaluator(config, episodes=2).pool
    assert pool.observation_space.shape == (9,)
    assert policy(torch.zeros(5, 9)).logits.shape == (5, 8)
    with pytest.raises(RuntimeError):
        policy(torch.zeros(5, 3))


def test_seats_are_refused_when_a_run_with_frames_is_built(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seats take turns"):
        scramjet.train(config_of("connect_four"), runs_dir=tmp_path, display="quiet")


@pytest.mark.parametrize("world", ["pool_worlds.py:Counter", "player_worlds.py:Mortals"])
def test_training_with_stacked_frames_resumes_bit_for_bit(world: str, tmp_path: Path) -> None:
    whole = config_of(str(POOL_WORLDS.with_name(world)))
    scramjet.train(whole, runs_dir=tmp_path, run_name="whole", display="quiet")
    stopped = scramjet.train(replace(whole, total_timesteps=64), runs_dir=tmp_path, run_name="half", display="quiet")
    assert stopped.step == 64
    scramjet.train(resume=tmp_path / "half", total_timesteps=128, display="quiet")
    for name in ("model.safetensors", "trainer.safetensors"):
        ours, theirs = ((tmp_path / run / "checkpoints/step_00000128" / name).read_bytes() for run in ("half", "whole"))
        assert ours == theirs, name


def test_a_step_while_rows_are_sent_is_refused_and_counts_for_nothing():
    pool = FrameStackPool(NativePool(Counter(), 2, backend="interpreted"), 2)
    pool.reset(0)
    actions = np.zeros(2, np.int64)
    pool.send(actions)
    with pytest.raises(ConfigError, match=r"step\(\) while envs step: call recv"):
        pool.step(actions)
    pool.recv()
    assert pool.steps_taken == 1
    with pytest.raises(ConfigError, match="out= does not fit"):
        pool.step(actions, out=object())
