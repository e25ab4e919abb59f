"""Native worlds as PettingZoo environments, checked by PettingZoo's own tests."""

import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from scramjet.engine.worlds.native_pool import NativePool
from scramjet.errors import WorldError
from tests.helpers import HELPERS

pytest.importorskip("pettingzoo", reason="needs PettingZoo: pip install 'scramjet[pettingzoo]'")
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, render_test, seed_test
from pettingzoo.utils import parallel_to_aec

from scramjet.adapters.exports import pettingzoo_env
from scramjet.adapters.exports.pettingzoo_env import env, parallel_env

pytestmark = pytest.mark.rest

MORTALS = f"{HELPERS}/player_worlds.py:Mortals"
TRIO = f"{HELPERS}/player_worlds.py:Trio"
AS_PETTINGZOOS_OWN_BOARD_GAMES = [  # which it excuses by name: a Dict with a mask, an empty board
    "Observation space for each agent probably should be gymnasium.spaces.box",
    "Observation is not a NumPy array",
    "Observation numpy array is all zeros",
]


@pytest.fixture(autouse=True)
def no_other_warning() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for message in AS_PETTINGZOOS_OWN_BOARD_GAMES:
            warnings.filterwarnings("ignore", message=message)
        yield


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler: that compiled rules give the same is proved in tests/parity/test_back_ends.py."""
    monkeypatch.setattr(pettingzoo_env, "NativePool", partial(NativePool, backend="interpreted"))


def test_worlds_pass_pettingzoos_tests_of_parallel_and_turn_based_envs():
    for snakes in (1, 3):
        parallel_api_test(parallel_env("snake", snakes=snakes), 200)
        parallel_seed_test(lambda snakes=snakes: parallel_env("snake", snakes=snakes), 50)
        api_test(parallel_to_aec(parallel_env("snake", snakes=snakes)), 50)
    for parameters in ({}, {"random_opponent": True}):
        api_test(env("connect_four", **parameters), 100)
        seed_test(lambda parameters=parameters: env("connect_four", **parameters), 50)


def test_both_draw_themselves_as_pettingzoos_test_wants_it(capsys):
    render_test(lambda render_mode: env("connect_four", render_mode=render_mode))
    assert "X to move" in capsys.readouterr().out  # for people, at every step
    render_test(lambda render_mode: parallel_to_aec(parallel_env("snake", snakes=2, render_mode=render_mode)))


def test_agents_are_told_their_masks():
    _, infos = parallel_env(MORTALS).reset(seed=4)
    assert [*infos] == ["agent_0", "agent_1", "agent_2"]
    assert [info["action_mask"].tolist() for info in infos.values()] == [[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1]]
    assert infos["agent_0"]["action_mask"].dtype == np.int8


def test_a_time_limit_truncates_all_who_are_alive():
    game = env(TRIO, shortest=7)  # the clock stops it at 6
    game.reset(seed=5)
    plies = 0
    while not any(game.truncations.values()):
        assert game.agent_selection == ["seat_2", "seat_2", "seat_0", "seat_1", "seat_2", "seat_2"][plies]
        game.step(np.array([0, game.observe(game.agent_selection)["action_mask"][3:].argmax()]))
        plies += 1
    assert plies == 6
    assert game.truncations == {"seat_0": True, "seat_1": True, "seat_2": True}
    assert not any(game.terminations.values())


def test_a_win_is_paid_to_both_seats_and_everyone_leaves_with_none():
    game = env("connect_four", render_mode="ansi")
    game.reset(seed=0)
    for column in (0, 1, 0, 1, 0, 1, 0):
        assert game.observe(game.agent_selection)["action_mask"].all()
        assert not game.observe({"seat_0": "seat_1", "seat_1": "seat_0"}[game.agent_selection])["action_mask"].any()
        game.step(column)
    assert game.rewards == {"seat_0": 1.0, "seat_1": -1.0}
    assert all(game.terminations.values())
    assert game.observe("seat_0")["observation"][0, 2:, 0].tolist() == [1, 1, 1, 1]
    assert game.observe("seat_1")["observation"][1, 2:, 0].tolist() == [1, 1, 1, 1]
    assert "X wins" in game.render()
    told = {}
    for agent in game.agent_iter():
        told[agent] = game.last()[1]
        game.step(None)
    assert told == {"seat_0": 1.0, "seat_1": -1.0}
    assert game.agents == []


def test_unseeded_resets_go_on_from_the_last_seed_with_new_episodes():
    game = parallel_env("snake", snakes=2)
    first = [game.reset(seed=4)[0]["agent_0"], game.reset()[0]["agent_0"], game.reset()[0]["agent_0"]]
    again = [game.reset(seed=4)[0]["agent_0"], game.reset()[0]["agent_0"], game.reset()[0]["agent_0"]]
    np.testing.assert_array_equal(first, again)
    assert len({obs.tobytes() for obs in first}) == 3


def test_worlds_for_one_and_of_the_other_kind_are_pointed_to_their_place():
    for build in (env, parallel_env):
        with pytest.raises(WorldError, match=r'played by one.*gymnasium.make\("scramjet.gym:scramjet/CartPole-v1"\)'):
            build("cartpole")
    with pytest.raises(WorldError, match=r"takes turns: use .*\.env\('connect_four'\)"):
        parallel_env("connect_four")
    with pytest.raises(WorldError, match=r"acts at once: use .*\.parallel_env\('snake'\)"):
        env("snake", snakes=2)
    with pytest.raises(WorldError, match="render_mode='gif'"):
        env("connect_four", render_mode="gif")


def test_a_move_before_the_start_and_one_outside_the_space_are_refused():
    game, board = parallel_env("snake", snakes=2), env("connect_four")
    for use in (lambda: game.step({}), lambda: board.step(0), lambda: board.render()):
        with pytest.raises(gymnasium.error.ResetNeeded):
            use()
    game.reset(seed=0)
    board.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match="no action of agent_1"):
        game.step({"agent_0": 1})
    with pytest.raises(gymnasium.error.InvalidAction, match="4 of agent_0 is not in"):
        game.step({"agent_0": 4, "agent_1": 1})
    with pytest.raises(gymnasium.error.InvalidAction):
        board.step(7)
