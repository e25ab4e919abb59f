"""PettingZoo's envs in pools: against native worlds, against scripts, and against the bare games themselves."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from scramjet.adapters.pettingzoo import AECPool, ParallelPool, make_pettingzoo_pool
from scramjet.engine import NativePool, Transition
from scramjet.engine.actions import random_actions
from scramjet.engine.episode_seeds import EpisodeSeed
from scramjet.engine.layout import PlayedBy
from scramjet.engine.trees import leaves
from scramjet.envs import load_env
from scramjet.errors import ConfigError, WorldError
from tests.helpers.player_worlds import Mortals
from tests.helpers.pool_transitions import assert_equal, copy

pytestmark = pytest.mark.rest
pettingzoo = pytest.importorskip("pettingzoo", reason="needs PettingZoo: pip install 'scramjet[pettingzoo]'")
from scramjet.adapters.exports.pettingzoo_env import env as aec_env  # noqa: E402
from scramjet.adapters.exports.pettingzoo_env import parallel_env  # noqa: E402

EYES = spaces.Box(-100, 100, (2,), np.float32)


class Lives(Mortals):
    """Mortals that live 1, 3 and 5 steps in every episode, whatever the seed."""

    def reset(self, s: Any) -> None:
        for k in range(3):
            s.life[k] = 1 + 2 * k


LIVES = f"{Path(__file__)}:Lives"


def assert_rows_equal(one: Any, other: Any, rows: np.ndarray) -> None:
    for ours, theirs in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(ours[rows], theirs[rows])


def assert_episodes_equal(one: Any, other: Any) -> None:
    assert one.num_ended == other.num_ended > 20
    for name in ("returns", "lengths", "env_ids", "players"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_agents_through_pettingzoo_play_as_they_do_natively():
    """Only what the dead see may differ: PettingZoo shows them nothing."""
    native = NativePool(load_env(LIVES), 4, num_threads=1)
    pool = ParallelPool("lives", lambda: parallel_env(LIVES), 4)
    assert (pool.num_rows, pool.num_players, pool.played_by, pool.mask_size) == (12, 3, PlayedBy.AGENTS, 4)
    expected, out, random = native.reset(5), pool.reset(5), np.random.default_rng(0)
    was_cut = 0
    for _ in range(60):
        np.testing.assert_array_equal(out.turn, expected.turn)
        assert_rows_equal(out.obs, expected.obs, expected.turn)
        np.testing.assert_array_equal(out.mask[expected.turn], expected.mask[expected.turn])
        assert out.mask[~out.turn].all()
        assert not any(leaf[~out.turn].any() for leaf in leaves(out.obs))
        actions = random_actions(native, expected, random)
        actions[~expected.turn] = 0  # through PettingZoo the dead do nothing
        expected, out = native.step(actions.copy()), pool.step(actions)
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(out, name), getattr(expected, name), err_msg=name)
        assert_rows_equal(out.final_obs, expected.final_obs, out.terminated | out.truncated)
        was_cut += int(out.truncated.sum())
    assert was_cut > 5
    assert_episodes_equal(pool.episodes(), native.episodes())


class Guests(pettingzoo.ParallelEnv):
    """A party told in advance: ada stays, bob joins after step 1 and leaves at 3, cleo leaves at 2; cut at 4.

    Everyone sees (step, number) and earns 10 times the step and the action.
    """

    metadata = {"name": "guests"}
    possible_agents = ["ada", "bob", "cleo"]
    script = [["ada", "cleo"], ["ada", "bob", "cleo"], ["ada", "bob"], ["ada"], []]

    def __init__(self) -> None:
        self.seeds: list[int | None] = []
        self.acted: list[list[str]] = []

    def observation_space(self, agent: str) -> Any:
        return EYES

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3, start=5)

    def observe(self, agents: list[str]) -> dict[str, Any]:
        return {a: np.array([self.time, self.possible_agents.index(a)], np.float32) for a in agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        self.time, self.agents = 0, self.script[0]
        return self.observe(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.acted.append(list(actions))
        self.time += 1
        before, self.agents = self.agents, self.script[self.time]
        seen = [agent for agent in self.possible_agents if agent in (*before, *self.agents)]
        rewards = {agent: 10 * self.time + int(actions.get(agent, 0)) for agent in seen}
        terminations = {agent: agent in before and agent not in self.agents and self.time < 4 for agent in seen}
        truncations = {agent: self.time == 4 for agent in seen}
        return self.observe(seen), rewards, terminations, truncations, {agent: {"mood": self.time} for agent in seen}


def test_agents_join_and_leave_in_the_middle_and_each_ends_once():
    pool = ParallelPool("guests", Guests, 2)
    out = pool.reset(40)
    assert out.turn.tolist() == [True, False, True] * 2
    assert out.obs.tolist() == [[0, 0], [0, 0], [0, 2]] * 2
    seen = []
    for t in range(4):
        out = pool.step(np.full(6, t % 3))
        seen.append([getattr(out, name)[3:].tolist() for name in ("turn", "reward", "terminated", "truncated")])
        ended = np.flatnonzero(out.terminated | out.truncated)
        assert out.final_obs[ended].tolist() == [[t + 1, row % 3] for row in ended]
    assert seen == [
        [[True, True, True], [15.0, 0.0, 15.0], [False] * 3, [False] * 3],  # actions begin at 5; bob had not acted
        [[True, True, False], [26.0, 26.0, 26.0], [False, False, True], [False] * 3],
        [[True, False, False], [37.0, 37.0, 0.0], [False, True, False], [False] * 3],
        [[True, False, True], [45.0, 0.0, 0.0], [False] * 3, [True, False, False]],  # and begun anew
    ]
    assert out.obs.tolist() == [[0, 0], [0, 0], [0, 2]] * 2
    np.testing.assert_array_equal(pool.views(), out.obs)
    episodes = pool.episodes()
    assert episodes.players.tolist() == [2, 2, 1, 1, 0, 0]
    assert episodes.env_ids.tolist() == [0, 1] * 3
    assert episodes.returns.tolist() == [41.0, 41.0, 63.0, 63.0, 123.0, 123.0]
    assert episodes.lengths.tolist() == [2, 2, 2, 2, 4, 4]
    assert episodes.stats["mood"].tolist() == [2, 2, 3, 3, 4, 4]
    first, second = EpisodeSeed.of(40).of_envs(2)
    assert [env.seeds for env in pool.envs] == [[None, first, None], [second, None]]  # the first looks for a mask
    assert pool.envs[0].acted == [["ada", "cleo"], ["ada", "bob", "cleo"], ["ada", "bob"], ["ada"]]


class Silent(Guests):
    """Who leaves is neither flagged nor shown its end."""

    def step(self, actions: dict[str, Any]) -> Any:
        obs, rewards, _, _, infos = super().step(actions)
        obs = {agent: obs[agent] for agent in self.agents}
        return obs, rewards, dict.fromkeys(obs, False), dict.fromkeys(obs, False), infos


class Both(Guests):
    """All is over at once, terminated and truncated."""

    def step(self, actions: dict[str, Any]) -> Any:
        obs, rewards, _, _, infos = super().step(actions)
        self.agents = []
        return obs, rewards, dict.fromkeys(obs, True), dict.fromkeys(obs, True), infos


def test_who_is_gone_without_a_word_has_terminated_where_last_seen_and_termination_wins_over_truncation():
    for kind, steps, ended in ((Silent, 2, [False, False, True]), (Both, 1, [True, False, True])):
        pool = ParallelPool("guests", kind, 1)
        pool.reset(0)
        for _ in range(steps):
            out = pool.step(np.zeros(3, np.int64))
        assert (out.terminated.tolist(), out.truncated.any()) == (ended, False), kind
        assert out.final_obs[2].tolist() == [1, 2], kind


class Hinted(Guests):
    """Legal actions are told in `info`: all but one."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        obs, infos = super().reset(seed)
        return obs, {agent: {"action_mask": self.mask(agent)} for agent in infos}

    def step(self, actions: dict[str, Any]) -> Any:
        *rest, infos = super().step(actions)
        return (*rest, {agent: {"action_mask": self.mask(agent)} for agent in infos})

    def mask(self, agent: str) -> np.ndarray:
        return np.arange(3) != (self.time + self.possible_agents.index(agent)) % 3


class Seen(Guests):
    """The same, and legal actions stand in the observation."""

    def observation_space(self, agent: str) -> Any:
        mask = spaces.Box(0, 1, (3,), np.int8)
        return spaces.Dict({"observation": spaces.Dict({"eyes": EYES}), "action_mask": mask})

    def observe(self, agents: list[str]) -> dict[str, Any]:
        return {
            agent: {"observation": {"eyes": eyes}, "action_mask": Hinted.mask(self, agent).astype(np.int8)}
            for agent, eyes in super().observe(agents).items()
        }


def test_masks_come_from_infos_and_from_observations():
    for kind in (Hinted, Seen):
        pool, plain = ParallelPool("masked", kind, 2), ParallelPool("guests", Guests, 2)
        assert (pool.mask_size, plain.mask_size) == (3, 0), kind
        out, expected = pool.reset(0), plain.reset(0)
        for t in (0, 1, 2, 3, 0, 1):
            masks = [[c != (t + row % 3) % 3 for c in range(3)] if out.turn[row] else [True] * 3 for row in range(6)]
            assert out.mask.tolist() == masks, (kind, t)
            np.testing.assert_array_equal(leaves(out.obs)[0], expected.obs)
            actions = np.zeros(6, np.int64)
            out, expected = pool.step(actions), plain.step(actions)


def test_seats_through_pettingzoo_play_as_they_do_natively():
    world = load_env("connect_four")
    native, pool = NativePool(world, 5, num_threads=1), AECPool("four", lambda: aec_env("connect_four"), 5)
    assert (pool.num_rows, pool.num_players, pool.played_by, pool.mask_size) == (5, 2, PlayedBy.SEATS, 7)
    assert pool.observation_space == world.observation_space
    assert pool.allocate().layout == native.allocate().layout
    expected, out, random = native.reset(3), pool.reset(3), np.random.default_rng(0)
    for _ in range(150):
        assert_equal(out, expected)
        np.testing.assert_array_equal(pool.views(), native.views())
        actions = random_actions(native, expected, random)
        expected, out = native.step(actions.copy()), pool.step(actions)
    assert_episodes_equal(pool.episodes(), native.episodes())


class Table(pettingzoo.AECEnv):
    """Three in turn; the mover gains its action and the next loses it. p_1 is out at ply 4; the rest ends at ply 8.

    How it ends is told by the last action: 0 truncates p_0 and p_2, 1 terminates p_0 and truncates p_2.
    """

    metadata = {"name": "table"}
    possible_agents = ["p_0", "p_1", "p_2"]

    def observation_space(self, agent: str) -> Any:
        return EYES

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def observe(self, agent: str) -> Any:
        if agent not in self.agents:
            raise KeyError(agent)  # as games may do once someone has left
        return np.array([self.ply, self.possible_agents.index(agent)], np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.ply, self.agents, self.agent_selection = 0, list(self.possible_agents), "p_0"
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0), dict.fromkeys(self.agents, 0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def step(self, action: Any) -> None:
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            return
        self.ply += 1
        after = self.agents[(self.agents.index(mover) + 1) % len(self.agents)]
        self._clear_rewards()
        self.rewards[mover] = int(action) * self.ply
        self.rewards[after] = -int(action) * self.ply
        self.infos = {agent: {"ply": self.ply} for agent in self.agents}
        self.agent_selection = after
        if self.ply == 4:
            self.terminations["p_1"], self.agent_selection = True, "p_2"
            self._deads_step_first()
        if self.ply == 8:
            self.terminations["p_0"] = bool(action)
            self.truncations = {"p_0": not action, "p_2": True}


def play_table(last: int) -> tuple[list[Transition], AECPool]:
    pool = AECPool("table", Table, 1)
    pool.reset(0)
    return [copy(pool.step(np.array([action]))) for action in (1, 1, 0, 1, 1, 0, 0, last)], pool


def test_who_is_out_gets_no_more_turns_the_game_goes_on_and_has_terminated_if_someone_does_at_the_end():
    outs, pool = play_table(last=0)
    assert [int(out.turn[0]) for out in outs] == [1, 2, 0, 2, 0, 2, 0, 0]  # the last: of the next game
    rewards = np.array([out.reward[0] for out in outs])
    assert rewards[:5].tolist() == [[1, -1, 0], [0, 2, -2], [0, 0, 0], [4, -4, 0], [-5, 0, 5]]
    assert [bool(out.terminated[0]) for out in outs] == [False] * 8
    assert [bool(out.truncated[0]) for out in outs] == [False] * 7 + [True]
    assert outs[-1].final_obs.tolist() == [[8, 0], [4, 1], [8, 2]]
    assert outs[-1].obs.tolist() == [[0, 0]]
    episodes = pool.episodes()
    assert (episodes.players.tolist(), episodes.lengths.tolist()) == ([0, 1, 2], [8, 8, 8])
    assert episodes.returns.tolist() == rewards.sum(0).tolist()
    assert episodes.stats["ply"].tolist() == [8, 4, 8]
    last = play_table(last=1)[0][-1]
    assert (bool(last.terminated[0]), bool(last.truncated[0])) == (True, False)


def test_tictactoe_by_name_is_the_bare_game():
    pytest.importorskip("pygame", reason="PettingZoo's games need pygame: pip install 'pettingzoo[classic]'")
    pool = make_pettingzoo_pool("pettingzoo:tictactoe_v3", "tictactoe_v3", 1)
    bare = importlib.import_module("pettingzoo.classic.tictactoe_v3").env()
    bare.reset()
    assert isinstance(pool, AECPool)
    out, random, games = pool.reset(0), np.random.default_rng(2), 0
    for _ in range(200):
        mover = bare.agent_selection
        seen = bare.observe(mover)
        assert out.turn.tolist() == [bare.possible_agents.index(mover)]
        np.testing.assert_array_equal(out.obs[0], seen["observation"])
        np.testing.assert_array_equal(out.mask[0], seen["action_mask"])
        action = random_actions(pool, out, random)
        out = pool.step(action)
        bare.step(int(action[0]))
        assert out.reward[0].tolist() == [bare.rewards[agent] for agent in bare.possible_agents]
        assert bool(out.terminated[0]) == all(bare.terminations.values())
        if out.terminated[0]:
            games += 1
            for k, agent in enumerate(bare.possible_agents):
                np.testing.assert_array_equal(out.final_obs[k], bare.observe(agent)["observation"])
            bare.reset()
    assert games > 15


def test_pursuit_by_name_has_agents_as_rows():
    pytest.importorskip("pygame", reason="PettingZoo's games need pygame: pip install 'pettingzoo[sisl]'")
    pool = make_pettingzoo_pool("pursuit", "pursuit_v5", 2, max_cycles=3, n_pursuers=4)
    assert isinstance(pool, ParallelPool)
    assert (pool.num_rows, pool.observation_space.shape) == (8, (7, 7, 3))
    pool.reset(0)
    ends = [pool.step(np.zeros(8, np.int64)).truncated.all() for _ in range(9)]
    assert sum(ends) == 3
    assert pool.episodes().num_ended == 24


def test_an_unknown_game_suggests_the_nearest():
    with pytest.raises(WorldError, match=r"no game 'pursuit_v4' here. Did you mean 'pursuit_v5'"):
        make_pettingzoo_pool("x", "pursuit_v4", 1)
    with pytest.raises(WorldError, match=r"There are .*tictactoe_v3"):
        make_pettingzoo_pool("x", "zzzz", 1)


def test_a_missing_package_says_what_to_install(monkeypatch):
    real = importlib.import_module

    def without(missing: str) -> Callable[[str], Any]:
        def import_module(name: str) -> Any:
            if missing in name:
                raise ModuleNotFoundError(f"No module named '{missing}'", name=missing)
            return real(name)

        return import_module

    monkeypatch.setattr(importlib, "import_module", without("tictactoe_v3"))
    with pytest.raises(WorldError, match=r"tictactoe_v3 cannot be imported .*pip install 'pettingzoo\[classic\]'"):
        make_pettingzoo_pool("x", "tictactoe_v3", 1)
    monkeypatch.setattr(importlib, "import_module", without("pettingzoo"))
    with pytest.raises(WorldError, match=r"pip install 'scramjet\[pettingzoo\]'"):
        make_pettingzoo_pool("x", "tictactoe_v3", 1)


def test_a_restored_pool_keeps_its_count_of_steps_and_says_that_its_episodes_are_fresh():
    for kind, make_env in ((ParallelPool, Guests), (AECPool, Table)):
        pool, other = kind("mine", make_env, 2), kind("mine", make_env, 2)
        pool.reset(9)
        for _ in range(3):
            pool.step(np.zeros(pool.num_rows, np.int64))
        out = other.restore(pool.snapshot())
        assert (other.steps_taken, pool.resume_note) == (3, None)
        assert other.resume_note == "mine cannot save its state: resumed with fresh episodes"
        assert not any(leaf[..., 0].any() for leaf in leaves(out.obs)), f"{kind}: the clock is at 0"
        for _ in range(8):
            other.step(np.zeros(pool.num_rows, np.int64))
        assert set(other.episodes().lengths.tolist()) <= {2, 4, 8}, "nothing of the episodes that were left"
        with pytest.raises(ConfigError, match="no snapshot"):
            other.restore({})


def changed(kind: type = Guests, **parts: Any) -> type:
    return type("Changed", (kind,), parts)


def misshapen(self: Any, agents: list[str], size: int = 3) -> dict[str, Any]:
    return {agent: np.zeros(size, np.float32) for agent in agents}


def overpaid(self: Any, actions: dict[str, Any]) -> Any:
    obs, rewards, *rest = Guests.step(self, actions)
    return (obs, {**rewards, "ada": "much"}, *rest)


UNLIKE = changed(observation_space=lambda self, agent: spaces.Box(0, 1, (3 if agent == "bob" else 2,), np.float32))
STRANGER = changed(script=[["ada", "dora"], ["ada"]], observe=lambda self, agents: misshapen(self, agents, 2))


def test_what_cannot_be_played_is_told():
    for kind, make_env, message in (
        (ParallelPool, UNLIKE, r"one observation_space, but ada has Box.* and bob has Box.*\(3,\).*pad"),
        (ParallelPool, changed(possible_agents=[]), "no possible_agents"),
        (ParallelPool, STRANGER, "not in possible_agents: dora"),
        (ParallelPool, changed(step=overpaid), "reward of ada is 'much'"),
        (ParallelPool, changed(step=lambda self, actions: 1 / 0), r"env 0 raised ZeroDivisionError in step\(\): "),
        (ParallelPool, changed(observe=misshapen), "observation of ada does not fit its space"),
        (ParallelPool, changed(Hinted, mask=lambda *_: np.ones(4)), r"mask of ada has the shape \[4\].* need \[3\]"),
        (ParallelPool, Table, "PettingZoo AECEnv: use AECPool"),
        (AECPool, Guests, "PettingZoo ParallelEnv: use ParallelPool"),
        (AECPool, dict, "make_env gave a dict"),
    ):
        with pytest.raises(WorldError, match=message):  # noqa: PT012 - whenever it is seen
            pool = kind("mine", make_env, 1)
            pool.reset(0)
            pool.step(np.zeros(pool.num_rows, np.int64))


def test_envs_of_one_pool_must_have_the_same_agents_and_spaces():
    fewer = changed(possible_agents=["ada", "cleo"])
    wider = changed(action_space=lambda self, agent: spaces.Discrete(4))
    for other, message in ((fewer, "different agents"), (wider, r"one action_space.*Discrete\(4\).*env 1")):
        made = iter([Guests(), other()])
        with pytest.raises(WorldError, match=message):
            ParallelPool("mixed", lambda made=made: next(made), 2)
