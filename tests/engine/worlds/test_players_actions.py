"""Actions of players that are not in the space, not legal or of a wrong shape."""

from __future__ import annotations

import numpy as np
import pytest

from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.errors import ConfigError, WorldError
from tests.helpers.player_pools import pool_of
from tests.helpers.player_worlds import Duel, Mortals, Painters, Trio


@pytest.mark.parametrize("action", [-3, 4, 2**40, -(2**63)])
def test_an_agents_choice_outside_the_space_is_refused_interpreted_and_brought_into_it_compiled(action: int) -> None:
    interpreted, compiled = pool_of(Mortals(), 2, "interpreted"), pool_of(Mortals(), 2)
    actions = np.array([2, 2, 1, 2, 2, action])
    interpreted.reset(2)
    compiled.reset(2)
    with pytest.raises(WorldError, match=rf"action {action} of env 1, agent 2 is outside Discrete\(4\) of Mortals"):
        interpreted.step(actions)
    nearest = min(max(action, 0), 3)
    assert compiled.step(actions).reward.tolist() == [12.0, 12.0, 11.0, 12.0, 12.0, 10.0 + nearest]


@pytest.mark.parametrize(("pair", "nearest"), [([-1, 3], [0, 2]), ([5, -5], [1, 0]), ([1, 2**50], [1, 2])])
def test_each_of_an_agents_choices_outside_its_range_is_refused_interpreted_and_mended_compiled(pair, nearest) -> None:
    interpreted, compiled = pool_of(Painters(), 2, "interpreted"), pool_of(Painters(), 2)
    actions = np.array([[0, 1], [1, 1], pair, [1, 2]])
    interpreted.reset(0)
    compiled.reset(0)
    with pytest.raises(WorldError, match=r"of env 1, agent 0 is outside MultiDiscrete\(\[2 3\]\) of Painters"):
        interpreted.step(actions)
    out = compiled.step(actions)
    assert out.reward.tolist() == [1.0, 11.0, 10.0 * nearest[0] + nearest[1], 12.0]
    assert out.obs[2].tolist() == nearest


@pytest.mark.parametrize(("pair", "nearest"), [([-1, 9], [0, 3]), ([3, -2], [2, 0])])
def test_each_of_a_seats_choices_outside_its_range_is_refused_interpreted_and_mended_compiled(pair, nearest) -> None:
    interpreted, compiled = pool_of(Trio(), 2, "interpreted"), pool_of(Trio(), 2)
    actions = np.array([[0, 0], pair])
    interpreted.reset(0)
    compiled.reset(0)
    with pytest.raises(WorldError, match=r"of env 1 is outside MultiDiscrete\(\[3 4\]\) of Trio"):
        interpreted.step(actions)
    assert compiled.step(actions).reward[1].tolist() == [10.0 * nearest[1], 0.0, -1.0 * nearest[0]]


@pytest.mark.parametrize(
    ("world", "actions", "message"),
    [
        (Mortals, [2, 2, 1, 2, 1, 0], r"action 1 of env 1, agent 1 is masked as illegal in the state of Mortals"),
        (Duel, [5, 0], r"action 0 of env 1 is masked as illegal in the state of Duel"),
        (Trio, [[0, 0], [0, 2]], r"action \[0 2\] of env 1 is masked as illegal in the state of Trio"),
    ],
)
def test_an_action_that_the_mask_forbids_is_refused_interpreted_naming_whose_it_is(world, actions, message) -> None:
    pool = pool_of(world(), 2, "interpreted")
    pool.reset(EpisodeSeed(0, first_env=4 if world is Duel else 0))  # there env 1 begins with seat 0
    before = pool.snapshot()["states"]
    with pytest.raises(WorldError, match=message):
        pool.step(np.array(actions))
    np.testing.assert_array_equal(pool.snapshot()["states"], before)


def test_a_dead_agent_may_do_anything_in_the_space() -> None:
    pool = pool_of(Mortals(), 1, "interpreted")
    pool.reset(EpisodeSeed(0, first_env=1))  # agent 0 dies at age 2
    pool.step(np.array([1, 2, 1]))
    assert pool.step(np.array([2, 0, 1])).turn.tolist() == [False, True, True]
    assert pool.allocate().mask.shape == (3, 4)
    assert pool.step(np.array([2, 1, 2])).reward[0] == 0.0  # 2 is what a living agent 0 might not choose at age 2


@pytest.mark.parametrize("shape", [(2,), (3,), (6, 1), (4,)])
def test_actions_for_fewer_rows_than_agents_are_refused(shape: tuple[int, ...]) -> None:
    pool = pool_of(Mortals(), 2)
    pool.reset(0)
    with pytest.raises(ConfigError, match=r"this pool takes int64 \[6\]"):
        pool.step(np.zeros(shape, np.int64))
