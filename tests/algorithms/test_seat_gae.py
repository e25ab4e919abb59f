"""Advantages of turn-based games: a chain of turns for each seat, told by hand and by the definition."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.algorithms.advantages import gae, seat_gae

SHARES = st.sampled_from([0.0, 0.1, 0.3, 1.0])
DISCOUNTS = st.sampled_from([0.0, 0.5, 0.9, 1.0])
GAMMA, LAMBDA = 0.5, 0.5


def one_game(seats, value, reward, *, terminated=None, truncated=None, final_value=None, last_value=None):
    """Numbers as `seat_gae` takes them, of one env; NaN wherever nothing may be read."""
    num_steps, num_seats = len(seats), len(reward[0])
    data = {
        "reward": torch.tensor(reward).float().unsqueeze(1),
        "value": torch.tensor(value).float().unsqueeze(1),
        "seat": torch.tensor(seats, dtype=torch.int8).unsqueeze(1),
        "terminated": torch.zeros(num_steps, 1, dtype=torch.bool),
        "truncated": torch.zeros(num_steps, 1, dtype=torch.bool),
        "final_value": torch.full((num_steps, 1, num_seats), torch.nan),
        "last_value": torch.full((1, num_seats), torch.nan),
    }
    if terminated is not None:
        data["terminated"][terminated] = True
    if truncated is not None:
        data["truncated"][truncated] = True
        data["final_value"][truncated, 0] = torch.tensor(final_value)
    if last_value is not None:
        data["last_value"][0] = torch.tensor(last_value)
    return data


def advantages_of(data, gamma=GAMMA, gae_lambda=LAMBDA):
    advantage, returns = seat_gae(**data, gamma=gamma, gae_lambda=gae_lambda)
    torch.testing.assert_close(returns, advantage + data["value"])
    return advantage[:, 0].tolist()


# --- by hand, with gamma = lambda = 1/2 --------------------------------------------------------------------------


def test_what_a_seat_is_paid_on_anothers_turn_is_the_reward_of_its_own_last_action():
    data = one_game([0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0], [[1, 0], [10, 0], [0, 20], [0, 2]], terminated=3)
    last_of_0, last_of_1 = 0 - 3.0, 2 - 4.0
    first_of_0 = (1 + 10) + 0.5 * 3.0 - 1.0 + 0.25 * last_of_0
    first_of_1 = (0 + 20) + 0.5 * 4.0 - 2.0 + 0.25 * last_of_1
    assert advantages_of(data) == pytest.approx([first_of_0, first_of_1, last_of_0, last_of_1])


def test_a_game_that_the_opponent_ends_has_no_future_for_the_other_seat_either():
    data = one_game([0, 1], [3.0, 4.0], [[0, 0], [-1, 1]], terminated=1, last_value=[100.0, 100.0])
    assert advantages_of(data) == pytest.approx([-1 - 3.0, 1 - 4.0])


def test_a_game_cut_short_is_bootstrapped_for_each_seat_from_its_own_last_view():
    data = one_game(
        [0, 1, 0],
        [1.0, 2.0, 9.0],
        [[1, 2], [3, 4], [0, 0]],
        truncated=1,
        final_value=[10.0, 20.0],
        last_value=[6.0, 7.0],
    )
    after_the_cut = 0 + 0.5 * 6.0 - 9.0
    assert advantages_of(data) == pytest.approx([1 + 3 + 0.5 * 10.0 - 1.0, 4 + 0.5 * 20.0 - 2.0, after_the_cut])


def test_the_end_of_a_rollout_is_bootstrapped_for_each_seat_from_its_own_view():
    data = one_game([1, 0], [2.0, 5.0], [[7, 1], [1, 3]], last_value=[10.0, 20.0])
    assert advantages_of(data) == pytest.approx([1 + 3 + 0.5 * 20.0 - 2.0, 1 + 0.5 * 10.0 - 5.0])


def test_a_seat_that_moves_several_times_in_a_row_discounts_each_of_its_moves():
    data = one_game([0, 0, 1, 0], [1.0, 2.0, 3.0, 4.0], [[1, 0], [2, 0], [4, 0], [8, 5]], terminated=3)
    third = 8 - 4.0
    second = 2 + 4 + 0.5 * 4.0 - 2.0 + 0.25 * third
    first = 1 + 0.5 * 2.0 - 1.0 + 0.25 * second
    assert advantages_of(data) == pytest.approx([first, second, 5 - 3.0, third])


def test_three_seats_each_have_a_chain_of_their_own():
    reward = [[1, 2, 4], [8, 16, 32], [64, 128, 256], [512, 1024, 2048], [4096, 8192, 16384]]
    data = one_game([2, 0, 2, 1, 0], [1.0, 2.0, 3.0, 4.0, 5.0], reward, last_value=[10.0, 20.0, 30.0])
    second_of_2 = (256 + 2048 + 16384) + 0.5 * 30.0 - 3.0
    second_of_0 = 4096 + 0.5 * 10.0 - 5.0
    expected = [
        (4 + 32) + 0.5 * 3.0 - 1.0 + 0.25 * second_of_2,
        (8 + 64 + 512) + 0.5 * 5.0 - 2.0 + 0.25 * second_of_0,
        second_of_2,
        (1024 + 8192) + 0.5 * 20.0 - 4.0,
        second_of_0,
    ]
    assert advantages_of(data) == pytest.approx(expected)


def test_what_a_seat_is_paid_before_its_first_turn_is_no_actions_merit():
    data = one_game([0, 1], [0.0, 0.0], [[0, 100], [0, 1]], terminated=1)
    assert advantages_of(data) == pytest.approx([0.0, 1.0])


def test_a_payment_of_the_next_game_never_reaches_the_last_one():
    data = one_game([0, 1, 1, 0], [0.0] * 4, [[0, 0], [1, 2], [50, 60], [3, 70]], terminated=1, last_value=[0.0, 0.0])
    assert advantages_of(data, gamma=1.0, gae_lambda=1.0) == pytest.approx([1.0, 2.0, 130.0, 3.0])


# --- by the definition -------------------------------------------------------------------------------------------


def random_games(seed, num_steps, num_envs, num_seats, terminated_share, truncated_share):
    """Random turns and ends; NaN in `final_value` wherever it must not be read."""
    rng = np.random.default_rng(seed)
    terminated = rng.random((num_steps, num_envs)) < terminated_share
    truncated = ~terminated & (rng.random((num_steps, num_envs)) < truncated_share)
    shape = (num_steps, num_envs, num_seats)
    final_value = np.where(truncated[..., None], rng.normal(0, 3, shape), np.nan)
    return {
        "reward": torch.tensor(rng.normal(0, 1, shape), dtype=torch.float32),
        "value": torch.tensor(rng.normal(0, 3, (num_steps, num_envs)), dtype=torch.float32),
        "seat": torch.tensor(rng.integers(num_seats, size=(num_steps, num_envs)), dtype=torch.int8),
        "terminated": torch.tensor(terminated),
        "truncated": torch.tensor(truncated),
        "final_value": torch.tensor(final_value, dtype=torch.float32),
        "last_value": torch.tensor(rng.normal(0, 3, (num_envs, num_seats)), dtype=torch.float32),
    }


def games_of(data, n):
    """(first step, last step, values after it [S]) of each game of env n, also of the one still going."""
    num_steps, start = len(data["reward"]), 0
    for t in range(num_steps):
        if data["terminated"][t, n]:
            yield start, t, np.zeros(data["reward"].shape[2])
            start = t + 1
        elif data["truncated"][t, n]:
            yield start, t, data["final_value"][t, n].double().numpy()
            start = t + 1
    if start < num_steps:
        yield start, num_steps - 1, data["last_value"][n].double().numpy()


def brute_force_advantages(data, gamma, gae_lambda):
    """Each seat's turns of each game as an episode of its own, and Schulman et al. 2016, eq. 16, on that."""
    reward, value, seat = data["reward"].double().numpy(), data["value"].double().numpy(), data["seat"].numpy()
    num_steps, num_envs, num_seats = reward.shape
    advantage = np.full((num_steps, num_envs), np.nan)
    for n in range(num_envs):
        for start, stop, after in games_of(data, n):
            for p in range(num_seats):
                turns = [t for t in range(start, stop + 1) if seat[t, n] == p]
                ends = [*turns[1:], stop + 1]
                following = [*(value[t, n] for t in turns[1:]), after[p]]
                errors = [
                    reward[t:end, n, p].sum() + gamma * next_value - value[t, n]
                    for t, end, next_value in zip(turns, ends, following, strict=False)
                ]
                for i, t in enumerate(turns):
                    advantage[t, n] = sum((gamma * gae_lambda) ** k * error for k, error in enumerate(errors[i:]))
    return advantage


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_steps=st.integers(1, 14),
    num_envs=st.integers(1, 3),
    num_seats=st.integers(1, 4),
    terminated_share=SHARES,
    truncated_share=SHARES,
    gamma=DISCOUNTS,
    gae_lambda=DISCOUNTS,
)
def test_seat_gae_is_gae_over_each_seats_own_chain_of_turns(
    seed, num_steps, num_envs, num_seats, terminated_share, truncated_share, gamma, gae_lambda
):
    data = random_games(seed, num_steps, num_envs, num_seats, terminated_share, truncated_share)
    advantage, returns = seat_gae(**data, gamma=gamma, gae_lambda=gae_lambda)
    expected = brute_force_advantages(data, gamma, gae_lambda)
    np.testing.assert_allclose(advantage.numpy(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(returns.numpy(), expected + data["value"].numpy(), rtol=1e-4, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), ends=SHARES, gamma=DISCOUNTS, gae_lambda=DISCOUNTS)
def test_with_one_seat_it_is_plain_gae_bit_for_bit(seed, ends, gamma, gae_lambda):
    data = random_games(seed, 12, 3, 1, ends / 2, ends / 2)
    plain = gae(
        data["reward"][..., 0],
        torch.cat([data["value"], data["last_value"].T]),
        data["terminated"],
        data["truncated"],
        data["final_value"][..., 0],
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    for ours, theirs in zip(seat_gae(**data, gamma=gamma, gae_lambda=gae_lambda), plain, strict=True):
        assert torch.equal(ours, theirs)


def test_games_of_several_envs_never_leak_into_each_other():
    data = random_games(12, 10, 3, 2, 0.1, 0.1)
    before, _ = seat_gae(**data, gamma=0.99, gae_lambda=0.95)
    for name in ("reward", "value", "final_value"):
        data[name][:, 1] += 50.0
    data["last_value"][1] += 50.0
    after, _ = seat_gae(**data, gamma=0.99, gae_lambda=0.95)
    assert torch.equal(after[:, [0, 2]], before[:, [0, 2]])
    assert (after[:, 1] - before[:, 1]).abs().max() > 1


def test_seat_gae_leaves_its_inputs_as_they_were():
    data = random_games(13, 10, 3, 2, 0.2, 0.2)
    copies = {name: tensor.clone() for name, tensor in data.items()}
    seat_gae(**data, gamma=0.99, gae_lambda=0.95)
    for name, tensor in data.items():
        torch.testing.assert_close(tensor, copies[name], rtol=0, atol=0, equal_nan=True)
