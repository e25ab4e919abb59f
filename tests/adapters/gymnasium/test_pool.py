"""Gymnasium envs behind our rules: what the serial pool does, the worker pool does alike (see its own tests)."""

import re
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.wrappers import RecordEpisodeStatistics, TransformReward

from scramjet.adapters.gymnasium.pool import SerialPool
from scramjet.adapters.registry import ForeignWorld
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.wrappers import FrameStackPool
from scramjet.errors import ConfigError, WorldError
from tests.helpers.pool_transitions import assert_equal
from tests.helpers.worker_worlds import Countdown, Feed, Global, Nested, Rewarding, Showing


def random_actions(steps: int, *shape: int, n: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(n, size=(steps, *shape))


def test_auto_reset_flags_final_observations_and_statistics_follow_the_contract():
    pool, num_envs = SerialPool("Countdown", Countdown, 5), 5
    out = pool.reset(7)
    assert out.obs.dtype == np.float32
    originals = [Countdown() for _ in range(num_envs)]
    for i, env in enumerate(originals):
        np.testing.assert_array_equal(env.reset(seed=EpisodeSeed.of(7).of_env(i))[0], out.obs[i])
    ended, totals, kinds = [], np.zeros(num_envs), set()
    for row in random_actions(40, num_envs):
        out = pool.step(row)
        for i, env in enumerate(originals):
            obs, reward, terminated, truncated, info = env.step(row[i] + 1)
            totals[i] += reward
            assert (out.reward[i], out.terminated[i]) == (reward, terminated)
            assert out.truncated[i] == (truncated and not terminated)
            if terminated or truncated:
                np.testing.assert_array_equal(out.final_obs[i], obs)
                ended.append((i, totals[i], env.length, info["length"], 1.0))
                kinds.add(env.length)
                totals[i], (obs, _) = 0.0, env.reset()
            np.testing.assert_array_equal(out.obs[i], obs)
    assert kinds == {2, 3, 4, 5}
    episodes = pool.episodes()
    assert set(episodes.stats) == {"length", "won"}
    columns = (episodes.env_ids, episodes.returns, episodes.lengths, episodes.stats["length"], episodes.stats["won"])
    assert list(zip(*[column.tolist() for column in columns], strict=True)) == ended
    assert pool.steps_taken == 40


class Boasting(Countdown):
    """Its `info` tells a score of its own."""

    def __init__(self, record: object) -> None:
        super().__init__()
        self.record = record

    def step(self, action):
        return (*super().step(action)[:4], {"episode": self.record})


def test_the_score_that_an_env_records_itself_is_the_one_that_counts_and_what_is_none_is_left_alone():
    def played(make) -> list[list[float]]:
        pool = SerialPool("Countdown", make, 2)
        pool.reset(0)
        for row in random_actions(20, 2):
            pool.step(row)
        episodes = pool.episodes()
        return [episodes.returns.tolist(), episodes.lengths.tolist()]

    plain = played(Countdown)
    assert played(lambda: TransformReward(RecordEpisodeStatistics(Countdown()), lambda reward: 0.01 * reward)) == plain
    for record in ({"r": "x", "l": 3}, {"r": 1.0, "l": 1e300}, {"r": None, "l": 2}, {"r": 1.0}, "text"):
        assert played(partial(Boasting, record)) == plain, record


def test_nested_observations_actions_in_parts_and_masks_arrive_where_they_belong():
    pool = SerialPool("Nested", Nested, 2)
    assert pool.mask_size == 5
    out = pool.reset(0)
    assert out.mask.tolist() == [[False, True, True, True, True]] * 2
    for count in (1, 2, 3):
        out = pool.step(np.array([[2, 1], [0, 0]]))
        assert out.obs["place"]["item0"].ravel().tolist() == [count % 5] * 2
        assert out.obs["place"]["item1"].tolist() == [[[count] * 2] * 2] * 2
        assert out.reward.tolist() == [3.0, 0.0]
        assert (~out.mask).argmax(1).tolist() == [count % 3] * 2
    out = pool.step(np.zeros((2, 2), np.int64))
    assert out.terminated.all()
    assert (out.final_obs["place"]["item1"] == 4).all()
    assert (out.obs["place"]["item1"] == 0).all()
    assert not out.mask[:, 0].any()
    pool = SerialPool("Nested", partial(Nested, mask_length=4), 1)
    with pytest.raises(WorldError, match=r"4 entries in env 0.*5 choices"):
        pool.reset(0)


def test_numbers_of_all_kinds_are_rewards_and_others_are_refused_with_the_env_and_the_value():
    def rewarded(reward: object) -> float:
        pool = SerialPool("Rewarding", partial(Rewarding, reward), 1)
        pool.reset(0)
        return pool.step(np.array([0])).reward[0]

    for reward in (2, True, np.float32(1.5), np.array([0.5]), np.array(3)):
        assert rewarded(reward) == np.float32(reward).item(), reward
    for reward in ("1.0", None, np.array([1.0, 2.0]), 1j, {"a": 1}):
        with pytest.raises(WorldError, match="as the reward of env 0") as caught:
            rewarded(reward)
        assert repr(reward) in str(caught.value)


def test_rows_sent_twice_and_rows_not_sent_are_refused():
    pool = SerialPool("Countdown", Countdown, 4)
    pool.reset(0)
    row = np.zeros(4, np.int64)
    pool.send(row, slice(0, 2))
    with pytest.raises(ConfigError, match="rows 1 to 3 step already"):
        pool.send(row, slice(1, 3))
    with pytest.raises(ConfigError, match="rows 2 to 4 were not sent together"):
        pool.recv(slice(2, 4))
    for ask in (lambda: pool.step(row), pool.snapshot):
        with pytest.raises(ConfigError, match=r"while envs step: call recv\(\) first"):
            ask()


def continues_exactly(make, name: str, num_envs: int = 2, steps: int = 25) -> SerialPool:
    """A pool restored goes on as the one saved; returns it."""
    saved, restored = SerialPool(name, make, num_envs), SerialPool(name, make, num_envs)
    saved.reset(5)
    shape = (steps, *saved._action_shape)
    if saved._action_dtype == np.int64:
        actions = random_actions(*shape, n=int(saved.action_space.n))
    else:
        actions = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    for row in actions:
        before = saved.step(row)
    snapshot = {name: array.copy() for name, array in saved.snapshot().items()}
    assert all(array.dtype.kind in "biuf" for array in snapshot.values())
    np.testing.assert_array_equal(restored.restore(snapshot).obs, before.obs)
    assert restored.steps_taken == steps
    for row in actions:
        assert_equal(saved.step(row), restored.step(row))
    saved_episodes, restored_episodes = saved.episodes(), restored.episodes()
    assert restored_episodes.returns.tolist() == saved_episodes.returns[-len(restored_episodes) :].tolist()
    return restored


def test_an_env_of_plain_attributes_is_restored_exactly_wrappers_and_generator_included():
    for make in (Countdown, partial(gymnasium.make, "CartPole-v1")):
        restored = continues_exactly(make, "Plain")
        assert restored.can_snapshot, make
        assert restored.resume_note is None, make


@pytest.mark.rest
def test_a_mujoco_env_is_restored_exactly_and_what_mujoco_gives_up_is_not_told_for_every_env(capfd):
    mujoco = pytest.importorskip("mujoco", reason="MuJoCo envs need the mujoco package")
    ForeignWorld("mujoco:HalfCheetah-v5").env_factory()()
    assert "deprecated" not in capfd.readouterr().err
    assert mujoco.get_mju_user_warning() is None  # while it steps, MuJoCo warns as ever
    make = partial(gymnasium.make, "Ant-v5", max_episode_steps=20)
    assert continues_exactly(make, "Ant-v5", steps=12).can_snapshot


@pytest.mark.rest
def test_an_atari_env_is_restored_exactly_frames_included():
    pytest.importorskip("ale_py", reason="Atari needs ale-py")
    from gymnasium.wrappers import FrameStackObservation

    def make(sticky: float) -> gymnasium.Env:
        env = gymnasium.make("ALE/Breakout-v5", obs_type="grayscale", repeat_action_probability=sticky)
        return FrameStackObservation(env, 4)

    assert continues_exactly(partial(make, 0.0), "Breakout", num_envs=1, steps=12).can_snapshot
    assert not SerialPool("Breakout", partial(make, 0.25), 1).can_snapshot  # the action to repeat is not to be had


def test_an_env_that_cannot_be_saved_resumes_with_fresh_episodes_and_says_so():
    for world in (Feed, Global):
        pool, again = SerialPool("Unsavable", world, 2), SerialPool("Unsavable", world, 2)
        pool.reset(0)
        for row in random_actions(9, 2):
            pool.step(row)
        assert not pool.can_snapshot, world
        snapshot = pool.snapshot()
        assert "states" not in snapshot, world
        out = again.restore(snapshot)
        assert again.resume_note == "Unsavable cannot save its state: resumed with fresh episodes"
        assert (out.obs[:, 1] == 0).all(), world
        assert again.steps_taken == 9, world
        assert again.unfinished()[1].tolist() == [0, 0], world
        np.testing.assert_array_equal(out.obs, SerialPool("Unsavable", world, 2).restore(snapshot).obs)
    saved, other = SerialPool("Countdown", Countdown, 1), SerialPool("Rewarding", partial(Rewarding, 1.0), 1)
    saved.reset(0)
    other.restore(saved.snapshot())
    assert other.resume_note is not None, "the state of one world does not go into another"


def test_envs_with_different_spaces_and_factories_that_make_none_are_refused():
    made = iter([Countdown, Nested])
    for make, message in (
        (lambda: next(made)(), r"World: env 1 has observation_space Dict.*env 0 has Box"),
        (lambda: 3, "made a int, which is no"),
        (lambda: 1 / 0, "env 0 raised making: ZeroDivisionError"),
    ):
        with pytest.raises(WorldError, match=message):
            SerialPool("World", make, 2)
    with pytest.raises(ConfigError, match="must be a function"):
        SerialPool("Nothing", 3, 1)  # type: ignore[arg-type]


UNFIT = [
    (0.5, None, r"observed 0.5 \(float\), and its observation_space has the shape \[3\]"),
    (np.array(0.5), None, r"observed float64 \[\], .*has the shape \[3\]"),
    (np.zeros(1), None, r"observed float64 \[1\], .*has the shape \[3\]"),
    (np.zeros(4), None, r"observed float64 \[4\], .*has the shape \[3\]"),
    (np.zeros((3, 1)), None, r"observed float64 \[3, 1\], .*has the shape \[3\]"),
    (None, None, r"observed None \(NoneType\), .*has the shape \[3\]"),
    (["a", "b", "c"], None, r"observed \['a', 'b', 'c'\] \(list\), which .* of float32 cannot hold"),
    ([[1], [1, 2], 3], None, r"has the shape \[3\]"),
    ({"a": 1.0}, Dict({"b": Box(0, 1, (1,))}), r"has no 'b'"),
    ({"b": 1.0}, Dict({"b": Box(0, 1, (2,))}), r"observation_space\['b'\] has the shape \[2\]"),
    ("up", Discrete(3), r"observed 'up' \(str\), which .* of int64 cannot hold"),
]
CONVERTED = [
    ([1, 2, 3], None, [1, 2, 3]),
    (np.array([[1, 2, 3]], np.int8), None, [1, 2, 3]),
    (np.array([1.5, 2, 3], np.float64), None, [1.5, 2, 3]),
    (0.5, Box(0, 1, ()), [0.5]),
    (0.5, Box(0, 1, (1,)), [0.5]),
    (np.array([2]), Discrete(3), [2]),
    (2, Discrete(3, start=1), [1]),
    ([1, 0], MultiBinary(2), [1, 0]),
]


def test_observations_of_other_types_are_converted_and_those_that_the_space_does_not_have_are_refused():
    for shown, space, expected in CONVERTED:
        pool = SerialPool("Showing", partial(Showing, shown, space), 1)
        assert pool.reset(0).obs[0].tolist() == expected, shown
        assert pool.step(np.array([0])).obs[0].tolist() == expected, shown
    for shown, space, message in UNFIT:
        pool = SerialPool("Showing", partial(Showing, shown, space), 2)
        with pytest.raises(WorldError, match=r"^Showing: env 0 observed") as caught:
            pool.reset(0)
        assert re.search(message, str(caught.value)), shown


def test_parts_of_an_observation_stay_where_they_belong_whatever_their_order():
    """A Dict that is not sorted, and a Tuple of more than ten."""
    box = Box(0, 99, (1,))
    many = {"b": tuple(np.array([float(i)]) for i in range(12)), "a": np.array([50.0])}
    space = Dict([("b", Tuple([box] * 12)), ("a", box)])
    for frame_stack in (1, 2):
        plain = SerialPool("Showing", partial(Showing, many, space), 1)
        plain.env = None  # whoever makes such a pool for training puts the world here
        pool = plain if frame_stack == 1 else FrameStackPool(plain, frame_stack)
        pool.reset(0)
        out = pool.step(np.array([0]))
        assert [out.obs["b"][f"item{i}"][0, -1] for i in range(12)] == list(range(12)), frame_stack
        assert out.obs["a"][0, -1] == 50, frame_stack


def test_actions_that_no_policy_can_choose_and_observations_that_none_can_see_are_refused():
    def make(name: str, space: object) -> Countdown:
        env = Countdown()
        setattr(env, name, space)
        return env

    for space, words in (
        (MultiDiscrete([]), "there is nothing to choose"),
        (Text(5), "scramjet acts in Discrete"),
        ("left or right", "scramjet acts in Discrete"),
        (None, "scramjet acts in Discrete"),
        (Dict({"a": Discrete(2)}), "scramjet acts in Discrete"),
    ):
        with pytest.raises(WorldError, match=rf"^Acting.action_space is .*{words}"):
            SerialPool("Acting", partial(make, "action_space", space), 1)
    for space in (MultiDiscrete([]), Box(0, 1, (0,)), "text", None):
        with pytest.raises(WorldError, match=r"^Seeing.observation_space is "):
            SerialPool("Seeing", partial(make, "observation_space", space), 1)
