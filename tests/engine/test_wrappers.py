"""Pools around pools. Stacked frames: what is seen is the last K observations of the same episode, zeros before its
start. Concatenated: the same envs, whoever holds them.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scramjet
from scramjet.algorithms.config import PPOConfig
from scramjet.engine import NativePool
from scramjet.engine.actions import random_actions
from scramjet.engine.trees import leaves
from scramjet.engine.wrappers import ConcatenatedPool, FrameStackPool, stacked_space
from scramjet.envs import Box, Dict, Discrete, Env, MultiBinary
from scramjet.errors import ConfigError
from scramjet.policies import PolicyConfig
from scramjet.policies.encoders.images import ImageLayout
from scramjet.training.components import make_evaluator, make_policy
from scramjet.training.config.run_config import CheckpointConfig, EvaluationConfig, RunConfig
from tests.helpers import HELPERS
from tests.helpers.player_worlds import Duel, Mortals
from tests.helpers.pool_transitions import assert_equal, assert_shown_equal, copy, legal_actions
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
        obs.picture[:] = 1 + 20 * s.time + np.arange(24).reshape(2, 3, 4)
        obs.inner.scene[0] = s.time
        obs.inner.speed[0] = s.last + 1
        obs.inner.speed[1] = -s.length
        obs.flags[0] = s.time % 2
        obs.flags[1] = 1
        obs.lone[0] = 1 + s.time

    def mask(self, s: Any, mask: Any) -> None:
        mask[(s.time + s._index) % 5] = False


def spaces_of(space: Any) -> Any:
    return {name: spaces_of(part) for name, part in space.spaces.items()} if isinstance(space, Dict) else space


WORLDS = [(Counter, "cpu"), (Film, "interpreted"), (Mortals, "cpu")]
of_each_kind = pytest.mark.parametrize(("world", "backend"), WORLDS)


def stacked_pool(world: type[Env], num_envs: int, num_frames: int, backend: Any = "interpreted") -> FrameStackPool:
    return FrameStackPool(NativePool(world(), num_envs, num_threads=1, backend=backend), num_frames)


@of_each_kind
def test_observations_are_the_last_few_of_the_same_episode_with_zeros_before_its_start(
    world: type[Env], backend: Any
) -> None:
    for num_frames in (1, 2, 3, 7):
        plain = NativePool(world(), 5, num_threads=1, backend=backend)
        stacked = stacked_pool(world, 5, num_frames, backend)
        stacks = [isinstance(part, Box) for part in leaves(spaces_of(plain.observation_space))]
        rows, random = plain.num_rows, np.random.default_rng(0)
        own = stacked.allocate() if num_frames > 2 else None  # arrays of the caller
        assert (stacked.num_envs, stacked.num_rows, stacked.mask_size) == (5, rows, plain.mask_size)
        stacked.step(random_actions(stacked, stacked.reset(8), random))  # forgotten by the next reset
        out, seen = plain.reset(9), stacked.reset(9, out=own)
        histories = [[[leaf[row].copy()] for leaf in leaves(out.obs)] for row in range(rows)]
        ended = begun = 0
        for _ in range(30):
            for row, past in enumerate(histories):
                check_row(seen.obs, row, past, stacks, num_frames)
            assert_shown_equal(seen, out, ("mask", "turn"))
            actions = random_actions(plain, out, random)
            out, seen = plain.step(actions.copy()), stacked.step(actions.copy(), out=own)
            assert own is None or seen is own
            for view, shown in zip(leaves(stacked.views()), leaves(seen.obs), strict=True):
                np.testing.assert_array_equal(view, shown)
            assert_shown_equal(seen, out, ("reward", "terminated", "truncated"))
            is_new = np.repeat(plain.states()["_steps"] == 0, rows // 5)
            for row, past in enumerate(histories):
                if out.terminated[row] or out.truncated[row]:
                    last = [[*few, leaf[row].copy()] for few, leaf in zip(past, leaves(out.final_obs), strict=True)]
                    check_row(seen.final_obs, row, last, stacks, num_frames)
                    ended += 1
                for few, leaf in zip(past, leaves(out.obs), strict=True):
                    if is_new[row]:
                        few.clear()
                    few.append(leaf[row].copy())
                begun += bool(is_new[row])
        assert ended >= 30
        assert begun >= 30
        for name in ("returns", "lengths", "env_ids", "players"):
            np.testing.assert_array_equal(getattr(stacked.pool.episodes(), name), getattr(plain.episodes(), name))


def check_row(obs: Any, row: int, past: list, stacks: list[bool], num_frames: int) -> None:
    """Boxes are the last few of one episode's observations, joined along the first axis, the newest last."""
    for stacks_leaf, leaf, frames in zip(stacks, leaves(obs), past, strict=True):
        blank = [np.zeros_like(frames[-1])] * num_frames
        expected = np.concatenate([*blank, *frames][-num_frames:]) if stacks_leaf else frames[-1]
        np.testing.assert_array_equal(leaf[row], expected, strict=True)  # in shape and type too


@of_each_kind
def test_a_restored_snapshot_of_stacked_frames_goes_on_exactly(world: type[Env], backend: Any) -> None:
    pool = stacked_pool(world, 4, 3, backend)
    actions, _ = legal_actions(pool, 2, 23), pool.reset(2)
    last, snapshot = [copy(pool.step(row)) for row in actions[:11]][-1], pool.snapshot()
    before = {name: array.tobytes() for name, array in snapshot.items()}
    after = [copy(pool.step(row)) for row in actions[11:]]
    assert {name: array.tobytes() for name, array in snapshot.items()} == before
    for other in (pool, stacked_pool(world, 4, 3, backend)):
        assert_shown_equal(other.restore(snapshot), last)
        for row, expected in zip(actions[11:], after, strict=True):
            assert_equal(other.step(row), expected)


def test_the_space_of_stacked_frames_repeats_each_box_along_its_first_axis_and_leaves_the_rest() -> None:
    space = stacked_space(Film.observation_space, 3)
    assert space["picture"] == Box(0, 255, (6, 3, 4), np.uint8)
    assert space["inner"]["speed"] == Box(-9.0, 9.0, (6,), np.float32)
    assert space["lone"] == Box(0.0, 99.0, (3,), np.float32)
    assert (space["inner"]["scene"], space["flags"]) == (Discrete(6), MultiBinary(2))
    uneven = Box(np.array([-1.0, -2.0], np.float32), np.array([3.0, 4.0], np.float32))
    assert stacked_space(uneven, 2).low.tolist() == [-1, -2, -1, -2]
    assert stacked_space(uneven, 2).high.tolist() == [3, 4, 3, 4]


def shaped(space: Any) -> NativePool:
    """A pool of Counter with another observation space, never played."""
    world = type("Shaped", (Counter,), {"observation_space": space, "observe": lambda self, s, obs: None})
    return NativePool(world(), 2, backend="interpreted")


def test_what_cannot_be_stacked_is_refused_with_the_way_out() -> None:
    picture, eye = Box(0, 255, (84, 84, 3), np.uint8), Dict({"eye": Box(0, 1, (9, 5, 1), np.uint8)})
    for pool, message in (
        (NativePool(Duel(), 2, backend="interpreted"), "frame_stack=2, but in Duel seats take turns"),
        (shaped(Discrete(4)), "frame_stack=2, but Shaped has no Box observation to stack; use --frame-stack 1"),
        (shaped(Dict({"a": MultiBinary(3)})), "Shaped has no Box observation to stack"),
        (shaped(picture), r"Shaped.observation_space \[84, 84, 3\] has its channels"),
        (shaped(eye), r"space\.eye \[9, 5, 1\] has its channels last"),
    ):
        with pytest.raises(ConfigError, match=message):
            FrameStackPool(pool, 2)
    for num_frames in (0, -1):
        with pytest.raises(ConfigError, match=rf"frame_stack={num_frames} must be at least 1"):
            stacked_pool(Counter, 2, num_frames)


def test_pictures_with_their_channels_first_are_stacked_and_still_read_so_by_a_policy() -> None:
    for channels, height, width in ((3, 84, 84), (1, 5, 5), (4, 4, 4), (2, 6, 6)):
        pool = FrameStackPool(shaped(Box(0, 1, (channels, height, width), np.uint8)), 4)
        assert pool.observation_space.shape == (4 * channels, height, width)
        layout = ImageLayout.of(pool.observation_space)
        assert (layout.channels, layout.height, layout.width) == (4 * channels, height, width)


def test_all_rows_of_a_stacked_pool_can_be_sent_and_some_cannot() -> None:
    pool, twin = (stacked_pool(Counter, 2, 2) for _ in range(2))
    pool.reset(0)
    twin.reset(0)
    actions = np.ones(2, np.int64)
    with pytest.raises(ConfigError, match="without send"):
        pool.recv()
    with pytest.raises(ConfigError, match="steps all its envs at once: send all rows"):
        pool.send(actions, slice(0, 1))
    pool.send(actions)
    for call, message in (
        (lambda: pool.send(actions), "all rows step already"),
        (lambda: pool.recv(slice(0, 1)), "were not sent together"),
        (lambda: pool.step(actions), r"step\(\) while envs step: call recv"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()
    np.testing.assert_array_equal(pool.recv().transition.obs, twin.step(actions).obs)
    assert pool.steps_taken == 1


def test_arrays_of_another_stacked_pool_are_refused() -> None:
    pool, other = stacked_pool(Counter, 2, 2), stacked_pool(Counter, 2, 3)
    pool.reset(0)
    for call in (lambda out: pool.step(np.zeros(2, np.int64), out=out), lambda out: pool.reset(1, out=out)):
        with pytest.raises(ConfigError, match=r"pool\.allocate"):
            call(other.allocate())
    with pytest.raises(ConfigError, match="out= does not fit"):
        pool.step(np.zeros(2, np.int64), out=object())


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


@pytest.mark.parametrize(
    "world", ["pool_worlds.py:Counter", pytest.param("player_worlds.py:Mortals", marks=pytest.mark.rest)]
)
def test_training_with_stacked_frames_resumes_bit_for_bit(world: str, tmp_path: Path) -> None:
    whole = config_of(str(POOL_WORLDS.with_name(world)))
    scramjet.train(whole, runs_dir=tmp_path, run_name="whole", display="quiet")
    stopped = scramjet.train(replace(whole, total_timesteps=64), runs_dir=tmp_path, run_name="half", display="quiet")
    assert stopped.step == 64
    scramjet.train(resume=tmp_path / "half", total_timesteps=128, display="quiet")
    for name in ("model.safetensors", "trainer.safetensors"):
        ours, theirs = ((tmp_path / run / "checkpoints/step_00000128" / name).read_bytes() for run in ("half", "whole"))
        assert ours == theirs, name


# --- concatenated pools --------------------------------------------------------------------------------------------


def joined(name, num_pools, num_envs):
    return ConcatenatedPool([scramjet.make(name, num_envs, num_threads=1) for _ in range(num_pools)])


@pytest.mark.parametrize(
    "name", ["cartpole", "connect_four", *(pytest.param(name, marks=pytest.mark.rest) for name in ("maze", "snake"))]
)
def test_together_they_play_what_one_pool_of_all_envs_plays(name):
    ours, whole = joined(name, 3, 4), scramjet.make(name, 12, num_threads=1)
    assert (ours.num_envs, ours.num_rows) == (whole.num_envs, whole.num_rows)
    out, expected = ours.reset(5), whole.reset(5)
    for t in range(60):
        assert_shown_equal(out, expected)
        actions = random_actions(whole, expected, np.random.default_rng(t))
        out, expected = ours.step(actions), whole.step(actions)
        assert_equal(out, expected)
    mine, its = ours.episodes(), whole.episodes()
    assert mine.num_ended == its.num_ended
    assert sorted(zip(mine.env_ids, mine.returns, mine.lengths, strict=True)) == sorted(
        zip(its.env_ids, its.returns, its.lengths, strict=True)
    )


def test_restored_they_begin_other_episodes_and_what_only_a_single_pool_can_do_is_refused():
    ours = joined("cartpole", 2, 4)
    first = ours.reset(5).obs.copy()
    ours.step(np.zeros(8, np.int64))
    again = ours.restore(ours.snapshot())
    assert "fresh episodes" in (ours.resume_note or "")
    assert not np.array_equal(again.obs, first)
    for ask in (ours.views, lambda: ours.simulate(np.zeros(8), np.zeros(8))):
        with pytest.raises(ConfigError, match="joined"):
            ask()
