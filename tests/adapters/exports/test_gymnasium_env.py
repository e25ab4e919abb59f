"""Native worlds as Gymnasium environments, checked by Gymnasium's own checkers."""

import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import scramjet
import scramjet.gym
from scramjet.adapters.exports import gymnasium_env
from scramjet.adapters.exports.gymnasium_env import GymEnv, GymVectorEnv
from scramjet.adapters.gymnasium.registered_envs import gym_id
from scramjet.engine import NativePool
from scramjet.envs import load_env, register, registrations, registry
from scramjet.errors import WorldError
from tests.helpers import HELPERS
from tests.helpers.processes import run_python

COUNTER = f"{HELPERS}/pool_worlds.py:Counter"
BUILT_IN = [entry for entry in registrations() if entry.env_class().__module__.startswith("scramjet.envs")]
IDS = [gym_id(entry) for entry in BUILT_IN]


OF_SEVERAL = {"scramjet/Kuhn-v0", "scramjet/Leduc-v0", "scramjet/Othello-v0", "scramjet/TicTacToe-v0"}


def test_the_ids_are_the_documented_ones_and_a_game_of_several_says_that_gymnasium_is_for_one():
    assert {"scramjet/CartPole-v1", "scramjet/Bandit-v0", "scramjet/ProbeAction-v0"} <= set(IDS)
    assert len(IDS) == len(set(IDS)) == len(BUILT_IN)
    for name in OF_SEVERAL:
        with pytest.raises(WorldError, match="interface is for one player"):
            gymnasium.make(name)


@pytest.fixture(autouse=True)
def interpreted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for CartPole, rules are interpreted: that compiled ones give the same is said in tests/parity/."""
    if "CartPole" not in request.node.name:
        monkeypatch.setattr(gymnasium_env, "NativePool", partial(NativePool, backend="interpreted"))


CARTPOLE = "scramjet/CartPole-v1"
OTHERS = [pytest.param(name, marks=pytest.mark.rest) for name in sorted({*IDS} - OF_SEVERAL - {CARTPOLE})]


@pytest.mark.parametrize("name", [CARTPOLE, *OTHERS])
def test_every_world_passes_gymnasiums_checker_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*infinity. This is probably too")  # as Gymnasium's own CartPole
        warnings.filterwarnings("ignore", message="(?s).*symmetric and normalized space")  # as Gymnasium's own Pendulum
        options = {"random_opponent": True} if name == "scramjet/ConnectFour-v0" else {}  # Gymnasium is for one player
        check_env(gymnasium.make(name, **options).unwrapped)


def test_a_masked_world_passes_gymnasiums_checker_and_tells_its_mask():
    env = GymEnv(COUNTER)
    check_env(env, skip_render_check=True)
    _, info = env.reset(seed=3)
    assert info["action_mask"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1]
    assert info["action_mask"].dtype == np.int8
    assert env.step(1)[4]["action_mask"].tolist() == [1, 1, 1, 1, 1, 0, 1, 1]


def test_importing_scramjet_loads_nothing_heavy_and_leaves_gymnasium_alone_until_it_is_asked():
    program = """
import sys, scramjet
print([name for name in ("torch", "numba", "gymnasium", "llvmlite") if name in sys.modules])
import gymnasium
print(type(gymnasium.__spec__.loader).__name__, gymnasium.__loader__.path[-11:])
ours = lambda: sum(name.startswith("scramjet/") for name in gymnasium.registry)
print(ours())
import scramjet.gym
gymnasium.register_envs(scramjet.gym)
print(ours())
"""
    assert run_python(program).splitlines() == ["[]", "SourceFileLoader __init__.py", "0", str(len(BUILT_IN))]


@pytest.mark.rest
def test_names_are_known_whatever_is_imported_first_and_left_alone_if_nothing_is():
    counted = "print(sum(name.startswith('scramjet/') for name in gymnasium.registry), len(sys.meta_path))"
    program = f"import gymnasium, sys\n{{}}\n{counted}"
    plain = run_python(program.format(""))
    assert run_python(program.format("import scramjet\nscramjet.make('bandit', 1, backend='interpreted')")) == plain
    program = "import scramjet.gym, gymnasium, sys\ngymnasium.register_envs(scramjet.gym)\n"
    assert run_python(program + counted).split()[0] == str(len(BUILT_IN))
    for call in ("make('scramjet.gym:scramjet/{}')", "make_vec('scramjet.gym:scramjet/{}', 2)"):
        program = f"import gymnasium\nprint(gymnasium.{call.format('CartPole-v1')}.reset(seed=1)[0].shape[-1])"
        assert run_python(program) == "4", call


def test_a_world_the_user_registers_is_known_to_gymnasium(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    register("my_counter", load_env(COUNTER).__class__)
    try:
        assert gymnasium.make("scramjet/MyCounter-v0").observation_space.shape == (3,)
    finally:
        gymnasium.registry.pop("scramjet/MyCounter-v0", None)


def test_a_seeded_env_plays_the_episode_of_env_0_of_a_pool_with_that_seed():
    pool, env = NativePool(load_env(COUNTER), 4, backend="interpreted"), GymEnv(COUNTER)
    actions = np.random.default_rng(0).integers(4, size=(3, 4))
    shown = set()
    for seed in range(50, 58):
        obs, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(obs, pool.reset(seed).obs[0])
        shown.add(obs.tobytes())
        for row in actions:
            out = pool.step(row)
            obs, reward, terminated, truncated, _ = env.step(row[0])
            assert (reward, terminated, truncated) == (out.reward[0], out.terminated[0], False)
            np.testing.assert_array_equal(obs, (out.final_obs if terminated else out.obs)[0])
            if terminated:
                break
    assert len(shown) > 1


def test_an_unseeded_reset_goes_on_from_the_last_seed_and_what_was_handed_out_is_not_changed():
    env = gymnasium.make("scramjet/CartPole-v1")
    first = [env.reset(seed=4)[0], env.reset()[0], env.step(0)[0], env.reset()[0]]
    before = [obs.copy() for obs in first]
    np.testing.assert_array_equal([env.reset(seed=4)[0], env.reset()[0], env.step(0)[0], env.reset()[0]], before)
    np.testing.assert_array_equal(first, before)
    assert len({obs.tobytes() for obs in first}) == 4


def test_the_time_limit_truncates_and_parameters_pass_through():
    env = gymnasium.make("scramjet/ProbeDelay-v0", delay=2)
    env.reset(seed=0)
    assert [env.step(0)[1:4] for _ in range(3)] == [(0.0, False, False), (0.0, False, False), (1.0, True, False)]
    env = GymEnv(COUNTER)
    lengths = []
    for seed in range(40):
        env.reset(seed=seed)
        steps, terminated, truncated = 0, False, False
        while not terminated and not truncated:
            _, _, terminated, truncated, _ = env.step(0)
            steps += 1
        assert truncated == (steps == 5 and not terminated)
        lengths.append((steps, truncated))
    assert set(lengths) == {(3, False), (4, False), (5, False), (5, True)}


def test_an_action_outside_the_space_is_refused_and_a_reset_is_needed_first():
    env = gymnasium.make("scramjet/CartPole-v1", disable_env_checker=True)
    env.reset(seed=0)
    for action in (2, -1, 0.5, "left", None, np.array([0, 1])):
        with pytest.raises(gymnasium.error.InvalidAction):
            env.step(action)
    for use in (lambda env: env.step(0), lambda env: env.render()):
        with pytest.raises(gymnasium.error.ResetNeeded):
            use(GymEnv("cartpole", render_mode="rgb_array"))
    vector = GymVectorEnv("cartpole", num_envs=2)
    vector.reset(seed=0)
    for actions in ([0, 2], [-1, 0], [0, 1, 1], [0.5, 0.0]):
        with pytest.raises((gymnasium.error.Error, scramjet.ScramjetError)):
            vector.step(np.array(actions))


def test_cartpole_renders_pictures_and_text():
    env = gymnasium.make("scramjet/CartPole-v1", render_mode="rgb_array")
    env.reset(seed=0)
    first = env.render()
    assert (first.dtype, first.ndim, first.shape[2]) == (np.uint8, 3, 3)
    for _ in range(6):
        env.step(1)
    assert env.render().shape == first.shape
    assert (env.render() != first).any()
    text = gymnasium.make("scramjet/CartPole-v1", render_mode="ansi")
    text.reset(seed=0)
    assert isinstance(text.render(), str)
    assert "#" in text.render()


def test_make_vec_gives_a_vector_env_of_ours_with_gymnasiums_spaces_or_gymnasiums_own():
    vector = gymnasium.make_vec("scramjet/CartPole-v1", num_envs=5)
    assert isinstance(vector.unwrapped, GymVectorEnv)
    obs, info = vector.reset(seed=1)
    assert vector.num_envs == 5
    assert obs in vector.observation_space
    assert info == {}
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, *others, _ = vector.step(vector.action_space.sample())
    assert obs in vector.observation_space
    assert [(array.shape, array.dtype) for array in others] == [((5,), np.float64), ((5,), np.bool_), ((5,), np.bool_)]
    vector.close()
    vector = gymnasium.make_vec("scramjet/ProbeDelay-v0", num_envs=2, delay=0)
    vector.reset(seed=0)
    assert vector.step(np.zeros(2, np.int64))[2].tolist() == [True, True]
    synchronous = gymnasium.make_vec("scramjet/CartPole-v1", num_envs=2, vectorization_mode="sync")
    assert synchronous.reset(seed=0)[0].shape == (2, 4)


def test_a_vector_plays_the_pools_episodes_and_gymnasiums_wrappers_take_it():
    pool = NativePool(load_env("cartpole"), 6, backend="interpreted")
    vector = gymnasium.wrappers.vector.RecordEpisodeStatistics(GymVectorEnv("cartpole", num_envs=6))
    np.testing.assert_array_equal(vector.reset(seed=9)[0], pool.reset(9).obs)
    lengths = []
    for row in np.random.default_rng(0).integers(2, size=(60, 6)):
        obs, reward, terminated, truncated, info = vector.step(row)
        out = pool.step(row)
        for got, expected in ((obs, out.obs), (reward, out.reward), (terminated, out.terminated)):
            np.testing.assert_array_equal(got, expected)
        assert not truncated.any()
        if terminated.any():
            lengths += info["episode"]["l"][terminated].tolist()
    assert len(lengths) == len(vector.length_queue) > 5
    assert list(vector.return_queue) == lengths  # CartPole pays 1 a step
    vector = GymVectorEnv("cartpole", num_envs=3)
    np.testing.assert_array_equal(vector.reset(seed=[7, 8, 9])[0], vector.reset(seed=7)[0])
    for seeds in ([7, 9, 8], [7, 8], [None] * 3, []):  # no list that one seed stands for
        with pytest.raises(gymnasium.error.Error, match="give one seed"):
            vector.reset(seed=seeds)


def test_final_observations_and_infos_are_those_of_gymnasiums_same_step_vectors():
    """Against Gymnasium's SyncVectorEnv over our single envs, which are given the first episodes of our vector."""
    num_envs = 8
    ours = GymVectorEnv(COUNTER, num_envs=num_envs)
    theirs = SyncVectorEnv([lambda: GymEnv(COUNTER)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    np.testing.assert_array_equal(ours.reset(seed=20)[0][0], theirs.reset(seed=20)[0][0])
    for i, single in enumerate(theirs.envs):
        single._states = ours._pool.states()[i : i + 1]
    is_first, totals, compared = np.ones(num_envs, bool), np.zeros(num_envs), 0
    for t, row in enumerate(np.random.default_rng(1).integers(4, size=(5, num_envs)), start=1):
        obs, reward, terminated, truncated, info = ours.step(row)
        their_obs, their_reward, their_terminated, their_truncated, their_info = theirs.step(row)
        totals += reward
        over = (terminated | truncated) & is_first
        theirs_told = (their_reward, their_terminated, their_truncated)
        for got, expected in zip((reward, terminated, truncated), theirs_told, strict=True):
            np.testing.assert_array_equal(got[is_first], expected[is_first])
        going_on = is_first & ~over
        np.testing.assert_array_equal(obs[going_on], their_obs[going_on])
        assert ("final_obs" in info) == bool((terminated | truncated).any())
        for i in np.flatnonzero(over):
            assert info["_final_obs"][i]
            assert their_info["_final_obs"][i]
            np.testing.assert_array_equal(info["final_obs"][i], their_info["final_obs"][i])
            assert info["_final_info"][i]
            assert info["final_info"]["episode"]["r"][i] == totals[i]
            assert info["final_info"]["episode"]["l"][i] == t
            assert info["final_info"]["last"][i] == row[i]
            compared += 1
        if "final_obs" in info:
            np.testing.assert_array_equal(info["_final_obs"], terminated | truncated)
            assert all(info["final_obs"][i] is None for i in np.flatnonzero(~info["_final_obs"]))
        is_first &= ~over
    assert compared == num_envs


def test_what_a_vector_hands_out_is_not_changed_by_later_steps_and_masks_are_of_the_next_observations():
    vector = GymVectorEnv(COUNTER, num_envs=4)
    obs, info = vector.reset(seed=0)
    kept = [(obs, obs.copy())]
    for row in np.random.default_rng(1).integers(4, size=(12, 4)):
        expected = [[int(action != 4 + count % 4) for action in range(8)] for count in obs[:, 1]]
        assert info["action_mask"].tolist() == expected
        obs, reward, terminated, truncated, info = vector.step(row)
        ended = np.flatnonzero(info.get("_final_obs", []))
        arrays = [obs, reward, terminated, truncated, *(info["final_obs"][i] for i in ended)]
        kept += [(array, array.copy()) for array in arrays]
    for array, before in kept:
        np.testing.assert_array_equal(array, before)
