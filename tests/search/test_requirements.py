"""What cannot be searched is refused, with the reason and what to do instead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from scramjet.adapters.registry import load_world
from scramjet.engine import NativePool
from scramjet.engine.wrappers.frame_stack import FrameStackPool
from scramjet.envs import Box, Env, MultiDiscrete
from scramjet.envs.classic_control.cartpole import CartPole
from scramjet.envs.classic_control.pendulum import Pendulum
from scramjet.envs.games.connect_four import ConnectFour
from scramjet.envs.games.kuhn import Kuhn
from scramjet.envs.games.maze import Maze
from scramjet.envs.games.snake import Snake
from scramjet.envs.probes.memory import Memory
from scramjet.envs.puzzles.game_2048 import Game2048
from scramjet.errors import ConfigError
from scramjet.search.requirements import check_searchable, note_on_chance
from tests.helpers.player_worlds import Duel, Mortals, Trio


class TwoKnobs(Env):
    """Two choices at once."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = MultiDiscrete([2, 3])
    state = {"turned": np.int32}


def policy(state_size: int = 0, num_frames: int = 1) -> Any:
    """What the check looks at in a policy."""
    return SimpleNamespace(state_size=state_size, env_spaces=SimpleNamespace(num_frames=num_frames))


@pytest.mark.parametrize("world", [CartPole(), ConnectFour(), ConnectFour(random_opponent=True), Snake(), Duel()])
@pytest.mark.parametrize("kind", ["alphazero", "spo"])
def test_worlds_for_one_and_for_two_in_turns_can_be_searched(world: Env, kind: Any) -> None:
    check_searchable(world, policy(), kind)
    check_searchable(NativePool(world, 1, backend="interpreted"), None, kind)


@pytest.mark.parametrize("world", [Pendulum(), TwoKnobs()])
def test_alphazero_needs_one_choice_among_several_and_spo_does_not(world: Env) -> None:
    check_searchable(world, policy(), "spo")
    with pytest.raises(ConfigError, match="use spo"):
        check_searchable(world, policy(), "alphazero")


@pytest.mark.parametrize(
    ("world", "problem"),
    [
        (load_world("gym:CartPole-v1", {}), "gym:CartPole-v1: a world of another library cannot be .*scramjet list"),
        (Kuhn(), r"Kuhn: its record holds what players must not see \(hidden = True\)"),
        (Memory(), r"Memory: its record holds what players must not see"),
        (Snake(snakes=2), "Snake: its 2 agents act at once"),
        (Mortals(), "agents act at once"),
        (Trio(), "3 seats"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["alphazero", "spo"])
def test_other_worlds_are_refused_by_name_with_the_reason(world: Any, problem: str, kind: Any) -> None:
    with pytest.raises(ConfigError, match=f"{kind} cannot search {problem}" if ":" in problem else problem):
        check_searchable(world, policy(), kind)


def test_policies_with_memory_and_stacked_frames_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"has memory.*without --policy\.memory"):
        check_searchable(CartPole(), policy(state_size=8), "spo")
    with pytest.raises(ConfigError, match=r"4 stacked frames.*--frame-stack 1"):
        check_searchable(CartPole(), policy(num_frames=4), "alphazero")
    stacked = FrameStackPool(NativePool(CartPole(), 1, backend="interpreted"), 2)
    with pytest.raises(ConfigError, match=r"stacked frames.*--frame-stack 1"):
        check_searchable(stacked, policy(), "spo")


@pytest.mark.parametrize(
    ("world", "has_chance"),
    [(Game2048(), True), (ConnectFour(random_opponent=True), True), (ConnectFour(), False), (Maze(), False)],
)
def test_a_tree_is_told_to_mislead_where_steps_draw_random_numbers(world: Env, has_chance: bool) -> None:
    note = note_on_chance(world, "alphazero")
    assert ("spo draws anew" in note) == has_chance
    assert bool(note) == has_chance
    assert note_on_chance(world, "spo") == ""
