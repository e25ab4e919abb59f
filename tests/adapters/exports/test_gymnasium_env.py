"""Native worlds as Gymnasium environments, checked by Gymnasium's own checkers."""

from __future__ import annotations

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
from scramjet.adapters.exports.gymnasium_ids import gym_id
from scramjet.adapters.make import make
from scramjet.engine import NativePool
from scramjet.envs import load_env, register, registrations, registry
from scramjet.errors import WorldError
from tests.helpers import HELPERS
from tests.helpers.processes import run_python

COUNTER = f"{HELPERS}/pool_worlds.py:Counter"
BUILT_IN = [entry for entry in registrations() if entry.env_class().__module__.startswith("scramjet.envs")]
IDS = [gym_id(entry) for entry in BUILT_IN]


def test_the_ids_are_the_documented_ones() -> None:
    assert {"scramjet/CartPole-v1", "scramjet/Bandit-v0", "scramjet/ProbeAction-v0"} <= set(IDS)
    assert len(IDS) == len(set(IDS)) == len(BUILT_IN)


OF_SEVERAL = {"scramjet/Kuhn-v0", "scramjet/Leduc-v0", "scramjet/Othello-v0", "scramjet/TicTacToe-v0"}


@pytest.mark.parametrize("name", sorted(OF_SEVERAL))
def test_a_game_of_several_says_that_gymnasium_is_for_one(name: str) -> None:
    with pytest.raises(WorldError, match="interface is for one player"):
        gymnasium.make(name)


COMPILED = {"scramjet/CartPole-v1", "scramjet/IdentityContinuous-v0", "scramjet/Maze-v0"}
"""A world of choices, one of numbers, and one with a mask and a dict of observations. The rules of all others are
interpreted: that compiled ones give the same is proved in `tests/parity/test_back_ends.py`."""


@pytest.mark.parametrize("name", sorted(set(IDS) - OF_SEVERAL))
def test_every_world_passes_gymnasiums_checker_without_a_warning(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name not in COMPILED:
        monkeypatch.setattr(gymnasium_env, "NativePool", partial(NativePool, backend="interpreted"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*infinity. This is probably too")  # as Gymnasium's own CartPole
        warnings.filterwarnings("ignore", message="(?s).*symmetric and normalized space")  # as Gymnasium's own Pendulum
        options = {"random_opponent": True} if name == "scramjet/ConnectFour-v0" else {}  # Gymnasium is for one player
        env = gymnasium.make(name, **options)
        check_env(env.unwrapped)


def test_a_masked_world_passes_gymnasiums_checker_and_tells_its_mask() -> None:
    env = GymEnv(COUNTER)
    check_env(env, skip_render_check=True)
    _, info = env.reset(seed=3)
    assert info["action_mask"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1]
    assert info["action_mask"].dtype == np.int8
    assert env.step(1)[4]["action_mask"].tolist() == [1, 1, 1, 1, 1, 0, 1, 1]


@pytest.mark.parametrize("imports", ["import scramjet.gym, gymnasium", "import gymnasium, scramjet.gym"])
def test_an_import_of_ours_makes_worlds_known_to_gymnasium_before_or_after_its_own(imports: str) -> None:
    program = (
        f"{imports}\ngymnasium.register_envs(scramjet.gym)\n"
        f"print(sum(name.startswith('scramjet/') for name in gymnasium.registry))"
    )
    assert run_python(program) == str(len(BUILT_IN))


@pytest.mark.parametrize("call", ["make('scramjet.gym:scramjet/{}')", "make_vec('scramjet.gym:scramjet/{}', 2)"])
def test_a_name_with_our_module_needs_no_import_of_ours(call: str) -> None:
    program = f"import gymnasium\nprint(gymnasium.{call.format('CartPole-v1')}.reset(seed=1)[0].shape[-1])"
    assert run_python(program) == "4"


def test_without_that_import_gymnasium_is_left_alone() -> None:
    program = (
        "import gymnasium, sys, scramjet, scramjet.envs.api\nscramjet.make('cartpole', 1, backend='interpreted')\n"
    )
    program += "print(any(name.startswith('scramjet/') for name in gymnasium.registry), len(sys.meta_path))"
    plain = run_python("import gymnasium, sys\nprint(False, len(sys.meta_path))")
    assert run_python(program) == plain


def test_a_world_the_user_registers_is_known_to_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    register("my_counter", load_env(COUNTER).__class__)
    try:
        assert gymnasium.make("scramjet/MyCounter-v0").observation_space.shape == (3,)
    finally:
        gymnasium.registry.pop("scramjet/MyCounter-v0", None)


LIGHT = """
import sys, scramjet
heavy = ("torch", "numba", "gymnasium", "llvmlite")
print([name for name in heavy if name in sys.modules])
"""


def test_importing_scramjet_loads_neither_torch_nor_numba_nor_gymnasium() -> None:
    assert run_python(LIGHT) == "[]"


def test_the_loader_of_gymnasium_is_left_as_it_was() -> None:
    program = (
        "import scramjet, gymnasium\nprint(type(gymnasium.__spec__.loader).__name__, gymnasium.__loader__.path[-11:])"
    )
    assert run_python(program) == "SourceFileLoader __init__.py"


# --- one env --------------------------------------------------------------------------------------------------


def test_a_seeded_env_plays_the_episode_of_env_0_of_a_pool_with_that_seed() -> None:
    pool, env = NativePool(load_env(COUNTER), 4, num_threads=1), GymEnv(COUNTER)
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


def test_an_unseeded_reset_goes_on_from_the_last_seed_with_new_episodes() -> None:
    env = gymnasium.make("scramjet/CartPole-v1")
    first = [env.reset(seed=4)[0], env.reset()[0], env.reset()[0]]
    again = [env.reset(seed=4)[0], env.reset()[0], env.reset()[0]]
    np.testing.assert_array_equal(first, again)
    assert len({obs.tobytes() for obs in first}) == 3


def test_the_time_limit_truncates_and_parameters_pass_through() -> None:
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


@pytest.mark.parametrize("action", [2, -1, 0.5, "left", None, np.array([0, 1])])
def test_an_action_outside_the_space_is_refused(action) -> None:
    env = gymnasium.make("scramjet/CartPole-v1", disable_env_checker=True)
    env.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction):
        env.step(action)


@pytest.mark.parametrize("use", [lambda env: env.step(0), lambda env: env.render()])
def test_a_reset_is_needed_first(use) -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        use(GymEnv("cartpole", render_mode="rgb_array"))


def test_observations_handed_out_are_not_changed_by_later_steps() -> None:
    env = gymnasium.make("scramjet/CartPole-v1")
    kept = [env.reset(seed=0)[0], env.step(0)[0], env.step(1)[0]]
    before = [obs.copy() for obs in kept]
    env.step(0)
    env.reset()
    np.testing.assert_array_equal(kept, before)


def test_cartpole_renders_pictures_and_text() -> None:
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


# --- vectors --------------------------------------------------------------------------------------------------


def test_make_vec_gives_a_vector_env_of_ours_with_gymnasiums_spaces() -> None:
    vector = gymnasium.make_vec("scramjet/CartPole-v1", num_envs=5)
    assert isinstance(vector.unwrapped, GymVectorEnv)
    obs, info = vector.reset(seed=1)
    assert vector.num_envs == 5
    assert obs in vector.observation_space
    assert info == {}
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, reward, terminated, truncated, _ = vector.step(vector.action_space.sample())
    assert obs in vector.observation_space
    assert [array.shape for array in (reward, terminated, truncated)] == [(5,)] * 3
    assert [array.dtype for array in (reward, terminated, truncated)] == [np.float64, np.bool_, np.bool_]
    vector.close()


def test_make_vec_takes_parameters_and_gymnasiums_own_vectorization() -> None:
    vector = gymnasium.make_vec("scramjet/ProbeDelay-v0", num_envs=2, delay=0)
    vector.reset(seed=0)
    assert vector.step(np.zeros(2, np.int64))[2].tolist() == [True, True]
    synchronous = gymnasium.make_vec("scramjet/CartPole-v1", num_envs=2, vectorization_mode="sync")
    assert synchronous.reset(seed=0)[0].shape == (2, 4)


def test_a_vector_plays_the_pools_episodes() -> None:
    vector, pool = GymVectorEnv("cartpole", num_envs=6), make("cartpole", 6, num_threads=1)
    np.testing.assert_array_equal(vector.reset(seed=9)[0], pool.reset(9).obs)
    for row in np.random.default_rng(0).integers(2, size=(60, 6)):
        obs, reward, terminated, truncated, _ = vector.step(row)
        out = pool.step(row)
        for got, expected in ((obs, out.obs), (reward, out.reward), (terminated, out.terminated)):
            np.testing.assert_array_equal(got, expected)
        assert not truncated.any()


def test_final_observations_and_infos_are_those_of_gymnasiums_same_step_vectors() -> None:
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
        for got, expected in (
            (reward, their_reward),
            (terminated, their_terminated),
            (truncated, their_truncated),
        ):
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


def test_vector_observations_handed_out_are_not_changed_by_later_steps() -> None:
    vector = GymVectorEnv(COUNTER, num_envs=4)
    kept = [vector.reset(seed=0)[0]]
    copies = [kept[0].copy()]
    for row in np.random.default_rng(1).integers(4, size=(12, 4)):
        obs, reward, terminated, truncated, info = vector.step(row)
        arrays = [obs, reward, terminated, truncated]
        if "final_obs" in info:
            arrays += [info["final_obs"][i] for i in np.flatnonzero(info["_final_obs"])]
        kept += arrays
        copies += [array.copy() for array in arrays]
    for array, expected in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, expected)


def test_a_vector_tells_the_masks_of_the_next_observations() -> None:
    vector = GymVectorEnv(COUNTER, num_envs=3)
    obs, info = vector.reset(seed=0)
    for row in np.random.default_rng(1).integers(4, size=(12, 3)):
        expected = [[int(action != 4 + count % 4) for action in range(8)] for count in obs[:, 1]]
        assert info["action_mask"].tolist() == expected
        obs, _, _, _, info = vector.step(row)


@pytest.mark.parametrize("actions", [[0, 2], [-1, 0], [0, 1, 1], [0.5, 0.0]])
def test_a_vector_refuses_actions_outside_its_space(actions: list) -> None:
    vector = GymVectorEnv("cartpole", num_envs=2)
    vector.reset(seed=0)
    with pytest.raises((gymnasium.error.Error, scramjet.ScramjetError)):
        vector.step(np.array(actions))


def test_a_vector_takes_the_list_of_seeds_that_one_seed_stands_for() -> None:
    vector = GymVectorEnv("cartpole", num_envs=3)
    np.testing.assert_array_equal(vector.reset(seed=[7, 8, 9])[0], vector.reset(seed=7)[0])
    for seeds in ([7, 9, 8], [7, 8], [None] * 3, []):
        with pytest.raises(gymnasium.error.Error, match="give one seed"):
            vector.reset(seed=seeds)


def test_gymnasiums_vector_wrappers_take_our_vectors() -> None:
    vector = gymnasium.wrappers.vector.RecordEpisodeStatistics(GymVectorEnv("cartpole", num_envs=3))
    vector.reset(seed=0)
    lengths = []
    for row in np.random.default_rng(0).integers(2, size=(120, 3)):
        _, _, terminated, _, info = vector.step(row)
        if terminated.any():
            lengths += info["episode"]["l"][terminated].tolist()
    assert len(lengths) == len(vector.length_queue) > 5
    assert list(vector.return_queue) == lengths  # CartPole pays 1 a step
