"""Methods that rules call on `self`: compiled along, as functions."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from scramjet.engine.worlds.check import check_world
from scramjet.engine.worlds.rules import constants_tuple, rule_functions, rules_fingerprint, with_methods
from scramjet.envs.registry import load_env

WORLD = """
import numpy as np
from scramjet.envs import Box, Discrete, Env

class Walker(Env):
    length: int = 8
    max_episode_steps = 50
    observation_space = Box(0, 1, (1,), np.float32)
    action_space = Discrete(2)
    state = {"at": np.int32}

    def reset(self, s):
        s.at = self.start()

    def start(self):
        return self.length // 4

    @staticmethod
    def within(x, low=0):
        return max(low, x)

    def share(self, s):
        return s.at / self.length

    def is_there(self, s):
        return self.share(s) >= 1.0

    def step(self, s, action):
        s.at = self.within(s.at + 2 * action - 1, low=0)
        return 1.0, self.is_there(s)

    def observe(self, s, obs):
        obs[0] = self.share(s)
"""


class Record:
    at = 0


def load(folder: Path, text: str) -> Any:
    (folder / "walker.py").write_text(textwrap.dedent(text))
    return load_env(f"{folder / 'walker.py'}:Walker")


def test_rules_that_call_methods_do_the_same_with_the_worlds_numbers_alone(tmp_path: Path) -> None:
    env = load(tmp_path, WORLD)
    numbers, rules = constants_tuple(env), with_methods(type(env), rule_functions(env))
    mine, theirs = Record(), Record()
    rules["reset"](numbers, mine)
    env.reset(theirs)
    for action in (1, 1, 0, 1, 1, 1, 1, 1, 1):
        assert rules["step"](numbers, mine, action) == env.step(theirs, action)
        assert mine.at == theirs.at
    assert rules["step"].__code__.co_firstlineno == env.step.__code__.co_firstlineno, "errors name the author's line"


def test_a_change_in_a_method_is_another_world_and_one_without_calls_stays_as_it_was(tmp_path: Path) -> None:
    env = load(tmp_path, WORLD)
    before = rules_fingerprint(env)
    assert rules_fingerprint(load(tmp_path, "# moved\n" + WORLD)) == before
    assert rules_fingerprint(load(tmp_path, WORLD.replace(">= 1.0", ">= 0.5"))) != before
    functions = rule_functions(load_env("cartpole"))
    assert with_methods(type(load_env("cartpole")), functions) == functions


def test_a_source_that_is_another_by_now_is_not_compiled_in_place_of_the_code(tmp_path: Path) -> None:
    env = load(tmp_path, WORLD)
    (tmp_path / "walker.py").write_text(WORLD.replace("2 * action - 1", "2 * action - 2"))
    functions = rule_functions(env)
    assert with_methods(type(env), functions)["step"] is functions["step"]


@pytest.mark.rest
def test_a_world_with_methods_compiles_and_equals_the_interpreted_one(tmp_path: Path) -> None:
    load(tmp_path, WORLD)
    findings = list(check_world(f"{tmp_path / 'walker.py'}:Walker", steps=100))
    assert [finding.text for finding in findings if not finding.is_fine] == []
