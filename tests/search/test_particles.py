"""The search by particles, against what its particles' records say, closed forms and exact values of games."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from scramjet.algorithms.spo import effective_sample_size
from scramjet.engine.simulator import Branches, Simulator
from scramjet.envs import Box, Discrete, Env, MultiDiscrete, randint
from scramjet.envs.games.tic_tac_toe import TicTacToe
from scramjet.search.search import Rewards
from tests.helpers.search_worlds import (
    REWARDS,
    STEP_GAMMA,
    Path,
    Searched,
    ShortPath,
    nothing,
    path_value,
    uniform,
)  # fmt: skip
from tests.helpers.small_games import best_result, cells, free_cells, has_line


def value_of(path):
    return float(path_value(torch.as_tensor(path, dtype=torch.float32)))


def advantages_of(record, root, ends_with=-1):
    """The advantage of each step that a particle made after its root, in order, by the rules of `Path`."""
    found, path = [], np.zeros(8)
    path[: root["length"]] = root["path"][: root["length"]]
    for step in range(root["length"], record["length"]):
        before = value_of(path)
        path[step] = record["path"][step]
        action = int(path[step]) - 1
        found.append(REWARDS[action] + (0.0 if action == ends_with else STEP_GAMMA * value_of(path)) - before)
    return found


def each(searched):
    """(root, particle, record of the particle, record of its root) of all particles."""
    roots, particles = searched.pool.states(), searched.particles()
    for n, p in itertools.product(range(particles.shape[0]), range(particles.shape[1])):
        yield n, p, particles[n, p], roots[n]


def by_path(obs):
    """A policy that does one thing for each path: 1 after an even sum of actions, else 3."""
    is_odd = obs.sum(1) % 2 == 1
    return torch.where(is_odd.unsqueeze(1), torch.tensor([0.0, 0, 0, 200]), torch.tensor([0.0, 200, 0, 0]))


def test_with_one_step_the_weights_are_the_softmax_of_the_advantages():
    searched = Searched(Path(), uniform(4), path_value, depth=1, temperature=0.3)
    result = searched.run()
    expected = torch.zeros(16, 16)
    for n, p, record, root in each(searched):
        expected[n, p] = advantages_of(record, root)[0]
    torch.testing.assert_close(result.advantages[:, 0], expected)
    torch.testing.assert_close(result.weights, torch.softmax(expected / 0.3, 1))
    mean = (result.weights * expected).sum(1)
    torch.testing.assert_close(result.improvement, mean - expected.mean(1))
    torch.testing.assert_close(result.ess, 1 / (16 * result.weights.square().sum(1)))
    assert result.weights.std() > 0.01
    assert result.is_counted.all()


def test_resampling_carries_first_actions_and_the_next_action_is_drawn_where_a_particle_then_stands():
    """Catches two mistakes: actions drawn before resampling and not permuted, and first actions left behind."""
    for period in (1, 2, 4):
        searched = Searched(Path(has_mask=False), by_path, path_value, resample_period=period, temperature=0.4)
        result = searched.run()
        firsts = set()
        for n, p, record, root in each(searched):
            actions = record["path"][root["length"] : record["length"]] - 1
            assert len(actions) == 4
            assert result.root_actions[n, p] == actions[0], period
            firsts.add(int(actions[0]))
            for step in range(1, 4):  # the first has noise
                place = root["length"] + step
                assert actions[step] == (3 if record["path"][:place].sum() % 2 else 1), period
        assert len(firsts) > 2  # there was something to mix up
        ended = [step for step in range(1, 5) if step % period == 0]
        assert result.is_counted[0].nonzero().flatten().add(1).tolist() == ended


RESAMPLING: list[dict[str, Any]] = [{"resample_period": 1}, {"resample_period": 3}, {"resample": "ess"}, {}]


def test_a_particle_has_the_advantages_of_its_own_legal_steps_since_resampling_and_none_after_its_end():
    for settings in RESAMPLING:
        searched = Searched(Path(), uniform(4), path_value, temperature=0.1, **settings)
        assert searched.out.mask.sum(1).tolist() == [3] * 16
        searched.run()
        assert not searched.particles()["is_broken"].any(), settings
        assert searched.particles()["length"].min() >= 4
    """Catches values added after an end: `path_value` is not 0 there. After a cut by the clock it counts once."""
    for world, settings in itertools.product((Path(), Path(ends_with=3), ShortPath()), RESAMPLING):
        searched = Searched(world, uniform(4), path_value, temperature=0.2, **settings)
        result = searched.run()
        for n, p, record, root in each(searched):
            before = result.is_counted[n, :-1].nonzero().flatten()
            begun = int(before[-1]) + 1 if len(before) else 0  # steps before this period
            mine = advantages_of(record, root, world.ends_with)
            assert len(mine) == 4 or not searched.search.simulator.live.view(16, 16)[n, p]
            expected = pytest.approx(float(sum(mine[begun:])), abs=2e-5)
            assert float(result.advantages[n, -1, p]) == expected, (world, settings)


def test_particles_are_resampled_by_weight_and_the_advantages_before_are_kept_for_the_temperature():
    searched = Searched(Path(has_mask=False), uniform(4), path_value, 288, depth=2, resample_period=1, temperature=0.4)
    result = searched.run()
    shares, actions = np.zeros(4), np.zeros(4)
    for n, root in enumerate(searched.pool.states()):
        path = root["path"].astype(float)
        gains = np.zeros(4)
        for action in range(4):
            path[root["length"]] = action + 1
            gains[action] = REWARDS[action] + STEP_GAMMA * value_of(path) - value_of(root["path"])
        before = result.advantages[n, 0].numpy()
        drawn = np.abs(before[:, None] - gains).argmin(1)  # the first actions as they were before resampling
        np.testing.assert_allclose(before, gains[drawn], atol=1e-5)
        weights = np.exp(before / 0.4) / np.exp(before / 0.4).sum()
        shares += np.bincount(drawn, weights, minlength=4)
        actions += np.bincount(result.root_actions[n].numpy(), minlength=4) / 16
    np.testing.assert_allclose(actions / 288, shares / 288, atol=0.01)
    assert np.ptp(shares) > 40  # far from equal


def test_by_effective_sample_size_only_those_roots_are_resampled_where_it_is_small():
    for threshold in (0.01, 0.6, 1.0):  # none, some, and all
        settings = {"resample": "ess", "ess_threshold": threshold, "temperature": 0.7}
        result = Searched(Path(), uniform(4), path_value, 32, **settings).run()
        ess = effective_sample_size(torch.softmax(result.advantages / 0.7, -1))
        assert torch.equal(result.is_counted[:, :-1], ess[:, :-1] < threshold * 16)
        assert result.is_counted[:, -1].all()
        assert (0.1 < result.is_counted[:, :-1].float().mean() < 0.9) == (threshold == 0.6)


def test_the_chosen_action_is_drawn_by_the_weights_and_without_exploration_the_one_of_largest_total_weight():
    searched = Searched(Path(has_mask=False), uniform(4), nothing, 512, depth=1, temperature=0.5)
    result = searched.run()
    expected = torch.zeros(512, 4).scatter_add_(1, result.root_actions, result.weights).mean(0)
    shares = torch.bincount(result.action, minlength=4) / 512
    torch.testing.assert_close(shares, expected, rtol=0, atol=0.06)
    assert expected.std() > 0.1
    searched.search.eta.fill_(5.0)
    searched.search.is_deterministic = True
    result = searched.run()
    total = torch.zeros(512, 4).scatter_add_(1, result.root_actions, result.weights)
    assert torch.equal(result.action, total.argmax(1))
    heaviest = result.root_actions.gather(1, result.weights.argmax(1, keepdim=True)).squeeze(1)
    assert not torch.equal(result.action, heaviest)  # the sum is not the same as the largest part


def test_first_actions_have_their_share_of_dirichlet_noise_over_legal_actions_and_none_without_exploration():
    def certain(obs):
        return torch.tensor([[99.0, 98, 97, 96]]).expand(len(obs), 4)

    searched = Searched(Path(), certain, nothing, 2048, depth=1, particles=2, dirichlet_fraction=0.6)
    legal = torch.as_tensor(searched.out.mask)
    actions = searched.run().root_actions
    policy = torch.softmax(certain(legal).masked_fill(~legal, -1e9), 1)
    for expected in (0.4 * policy + 0.6 * legal / 3, policy):
        shares = torch.bincount(actions.flatten(), minlength=4) / 4096
        torch.testing.assert_close(shares, expected.mean(0), rtol=0, atol=0.04)
        # An alpha of 0.03 puts nearly all noise on one action: two particles of one root mostly agree.
        assert (actions[:, 0] == actions[:, 1]).float().mean() > 0.45
        searched.search.is_deterministic = True
        actions = searched.run().root_actions


def test_the_temperature_is_the_learners_and_rewards_are_clipped_and_scaled_as_the_values_count_them():
    searched = Searched(Path(), uniform(4), path_value, depth=1, temperature=0.5)
    searched.search.eta.fill_(2.0)  # where the learner writes it
    result = searched.run()
    torch.testing.assert_close(result.weights, torch.softmax(result.advantages[:, 0] / 2.0, 1))
    rewards = Rewards(STEP_GAMMA, torch.tensor([10.0]), clip=0.35)
    result = Searched(Path(), uniform(4), nothing, depth=1, rewards=rewards).run()
    paid = torch.tensor([0.0, 3.5, -3.0, 3.5])
    torch.testing.assert_close(result.advantages[:, 0], paid[result.root_actions])


# --- other actions ---------------------------------------------------------------------------------------------


class Knobs(Env):
    """Shows nothing and remembers the last action: two dials, paid for where they are 2 and 0."""

    observation_space = Box(0, 1, (1,), np.float32)
    action_space = MultiDiscrete([3, 2])
    state = {"last": (np.int64, (2,))}

    def reset(self, s):
        pass

    def step(self, s, action):
        for i in range(2):
            s.last[i] = action[i]
        return (1.0 if action[0] == 2 and action[1] == 0 else 0.0), False

    def observe(self, s, obs):
        obs[0] = 0


class Target(Knobs):
    """Pays for numbers near 0.5 and -0.25."""

    action_space = Box(-1, 1, (2,), np.float32)
    state = {"last": (np.float32, (2,))}

    def step(self, s, action):
        for i in range(2):
            s.last[i] = action[i]
        return -((action[0] - 0.5) ** 2) - (action[1] + 0.25) ** 2, False


class Coin(Knobs):
    """Pays 1 for guessing a coin that is tossed after the guess."""

    max_episode_steps = 10
    action_space = Discrete(2)
    state = {"unused": np.int8}

    def step(self, s, action):
        return (1.0 if action == randint(s, 2) else 0.0), False


def test_several_choices_at_once_are_searched_as_one_action():
    searched = Searched(Knobs(), uniform(5), nothing, 32, depth=1, particles=32, temperature=0.02)
    result = searched.run()
    assert result.root_actions.shape == (32, 32, 2)
    np.testing.assert_array_equal(searched.particles()["last"], result.root_actions.numpy())
    pays = (result.root_actions == torch.tensor([2, 0])).all(-1)
    assert torch.equal(result.advantages[:, 0] == 1, pays)
    searched.search.is_deterministic = True
    assert searched.run().action.tolist() == [[2, 0]] * 32


def test_continuous_actions_are_searched_and_their_weighted_mean_is_the_choice_without_exploration():
    def normal(obs):  # mean 0, deviation 1 / e
        return torch.tensor([[0.0, 0.0, -1.0, -1.0]]).expand(len(obs), 4)

    searched = Searched(Target(), normal, nothing, 64, depth=1, particles=64, temperature=0.1)
    searched.search.is_deterministic = True
    result = searched.run()
    reached = searched.policy.distribution.env_action(result.root_actions.flatten(0, 1))
    np.testing.assert_array_equal(searched.particles()["last"].reshape(-1, 2), reached.numpy())
    torch.testing.assert_close(result.action, (result.weights.unsqueeze(-1) * result.root_actions).sum(1))
    # exp(-(a - target)^2 / eta) is a normal density of variance eta / 2: the product of both has this mean.
    variance = np.exp(-2)
    mean = torch.tensor([0.5, -0.25]) * variance / (variance + 0.05)
    torch.testing.assert_close(result.action.mean(0), mean, rtol=0, atol=0.03)


# --- no foresight ----------------------------------------------------------------------------------------------


class Foreseeing(Simulator):
    """Steps branches with the random numbers that are in their records: those that the envs will draw."""

    def step(self, actions: torch.Tensor, key: torch.Tensor, depth: int) -> Branches:
        states = self.records.numpy().view(self.pool.states().dtype).ravel()
        after, out = self.pool.simulate(states, actions.numpy())
        states[:] = after
        self.now.reward.copy_(torch.as_tensor(out.reward))
        return self.now


def test_planning_for_the_next_coin_gains_nothing_but_with_the_records_own_random_numbers():
    luck = 5 * 0.5 / (16 * 64) ** 0.5  # five deviations of the mean of so many coins
    for foresees, depth, low, high in ((False, 1, 0.5 - luck, 0.5 + luck), (False, 2, 0.5 - luck, 0.5 + luck),
                                       (True, 1, 0.95, 1.0)):  # fmt: skip
        searched = Searched(Coin(), uniform(2), nothing, 64, depth=depth, particles=8, temperature=0.05)
        searched.search.is_deterministic = True
        if foresees:
            searched.search.simulator = Foreseeing(searched.pool, 64 * 8)
        pay = np.mean([searched.play() for _ in range(16)])
        assert low <= pay <= high, (foresees, depth)


# --- two seats -------------------------------------------------------------------------------------------------


def exact_value(obs):
    """Of boards as the game shows them, [B, 2, 3, 3]."""
    return torch.tensor([float(best_result(*map(cells, board))) for board in obs.numpy()])


def table(value, num_envs=64, backend="cpu", **settings):
    """A search of positions after up to six random moves."""
    rewards = Rewards(1.0, torch.ones(1))
    return Searched(TicTacToe(opening_plies=6), uniform(9), value, num_envs, backend, rewards, **settings)


def boards(searched):
    return [tuple(map(cells, board)) for board in searched.out.obs]


def test_a_win_in_one_move_is_found_without_any_knowledge_of_values():
    searched = table(nothing, 128, depth=1, particles=64, temperature=0.02)
    searched.search.is_deterministic = True
    num_wins = 0
    for (mine, other), action in zip(boards(searched), searched.run().action.tolist(), strict=True):
        free = free_cells(mine, other)
        wins = [cell for cell in free if has_line(mine | 1 << cell)]
        num_wins += len(wins) > 0
        assert action in (wins or free)
    assert num_wins > 10


def test_only_own_moves_are_weighed_so_that_no_blunder_of_the_other_seat_is_hoped_for():
    searched = table(exact_value, depth=2, particles=32)
    result = searched.run()
    seats = set()
    for n, (mine, other) in enumerate(boards(searched)):
        seats.add(int(searched.out.turn[n]))
        for p, action in enumerate(result.root_actions[n].tolist()):
            lost = -best_result(other, mine | 1 << action) - best_result(mine, other)
            assert result.advantages[n, 0, p] == lost
            assert result.advantages[n, 1, p] == lost  # whatever the other seat replied
    assert seats == {0, 1}
    assert result.advantages.min() == -2


def test_with_exact_values_no_particle_gains_and_every_chosen_move_keeps_the_value():
    searched = table(exact_value, depth=4, particles=64, temperature=0.05, resample_period=1)
    searched.search.is_deterministic = True
    result = searched.run()
    assert result.advantages.max() == 0
    for (mine, other), action in zip(boards(searched), result.action.tolist(), strict=True):
        assert -best_result(other, mine | 1 << action) == best_result(mine, other)


def test_a_search_is_repeated_by_its_generator_and_by_the_interpreter():
    searched = Searched(Path(), uniform(4), path_value, resample_period=1)
    first = searched.run().root_actions.clone()
    second = searched.run().root_actions.clone()
    searched.generator.manual_seed(5)
    torch.manual_seed(77)
    assert torch.equal(searched.run().root_actions, first)
    assert not torch.equal(first, second)
    found = [table(exact_value, 8, backend, resample_period=1).run() for backend in ("interpreted", "cpu")]
    assert torch.equal(found[0].root_actions, found[1].root_actions)
    assert torch.equal(found[0].advantages, found[1].advantages)
