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


def one_game(seats, value, reward, *, terminated=None, truncated=None):
    """Numbers as `seat_gae` takes them, of one env: one more seat and value than rewards."""
    num_steps = len(reward)
    assert len(seats) == len(value) == num_steps + 1
    data = {
        "reward": torch.tensor(reward).float().unsqueeze(1),
        "value": torch.tensor(value).float().unsqueeze(1),
        "seat": torch.tensor(seats, dtype=torch.int8).unsqueeze(1),
        "terminated": torch.zeros(num_steps, 1, dtype=torch.bool),
        "truncated": torch.zeros(num_steps, 1, dtype=torch.bool),
        "final_value": torch.full((num_steps, 1), torch.nan),
    }
    if terminated is not None:
        data["terminated"][terminated] = True
    if truncated is not None:
        data["truncated"][truncated] = True
    return data


def advantages_of(data, gamma=GAMMA, gae_lambda=LAMBDA):
    """Advantages of one env, None where a turn does not count."""
    advantage, returns, counts = seat_gae(**data, gamma=gamma, gae_lambda=gae_lambda)
    torch.testing.assert_close(returns, advantage + data["value"][:-1])
    assert (advantage[~counts] == 0).all()
    return [float(a) if known else None for a, known in zip(advantage[:, 0], counts[:, 0], strict=True)]


# --- by hand, with gamma = lambda = 1/2 --------------------------------------------------------------------------


def test_what_a_seat_is_paid_on_anothers_turn_is_the_reward_of_its_own_last_action():
    data = one_game([0, 1, 0, 1, 0], [1.0, 2.0, 3.0, 4.0, 99.0], [[1, 0], [10, 0], [0, 20], [0, 2]], terminated=3)
    last_of_0, last_of_1 = 0 - 3.0, 2 - 4.0
    first_of_0 = (1 + 10) + 0.5 * 3.0 - 1.0 + 0.25 * last_of_0
    first_of_1 = (0 + 20) + 0.5 * 4.0 - 2.0 + 0.25 * last_of_1
    assert advantages_of(data) == pytest.approx([first_of_0, first_of_1, last_of_0, last_of_1])


def test_a_game_that_the_opponent_ends_has_no_future_for_the_other_seat_either():
    data = one_game([0, 1, 0], [3.0, 4.0, 100.0], [[0, 0], [-1, 1]], terminated=1)
    assert advantages_of(data) == pytest.approx([-1 - 3.0, 1 - 4.0])


def test_the_last_turn_of_each_seat_in_a_game_cut_short_does_not_count_and_the_one_before_goes_up_to_it():
    data = one_game([0, 1, 0, 1, 0], [1.0, 2.0, 3.0, 9.0, 6.0], [[1, 2], [3, 4], [0, 0], [0, 1]], truncated=2)
    first_of_0 = 1 + 3 + 0.5 * 3.0 - 1.0
    assert advantages_of(data) == [pytest.approx(first_of_0), None, None, None]


def test_the_end_of_a_rollout_is_bootstrapped_for_the_seat_to_move_and_leaves_the_others_open():
    data = one_game([1, 0, 1, 0], [2.0, 5.0, 7.0, 10.0], [[7, 1], [1, 3], [2, 4]])
    first_of_1 = 1 + 3 + 0.5 * 7.0 - 2.0
    first_of_0 = 1 + 2 + 0.5 * 10.0 - 5.0
    assert advantages_of(data) == [pytest.approx(first_of_1), pytest.approx(first_of_0), None]


def test_a_seat_that_moves_several_times_in_a_row_discounts_each_of_its_moves():
    data = one_game([0, 0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0, 9.0], [[1, 0], [2, 0], [4, 0], [8, 5]], terminated=3)
    third = 8 - 4.0
    second = 2 + 4 + 0.5 * 4.0 - 2.0 + 0.25 * third
    first = 1 + 0.5 * 2.0 - 1.0 + 0.25 * second
    assert advantages_of(data) == pytest.approx([first, second, 5 - 3.0, third])


def test_three_seats_each_have_a_chain_of_their_own():
    reward = [[1, 2, 4], [8, 16, 32], [64, 128, 256], [512, 1024, 2048], [4096, 8192, 16384]]
    data = one_game([2, 0, 2, 1, 0, 0], [1.0, 2.0, 3.0, 4.0, 5.0, 10.0], reward)
    second_of_0 = 4096 + 0.5 * 10.0 - 5.0
    expected = [
        pytest.approx((4 + 32) + 0.5 * 3.0 - 1.0),
        pytest.approx((8 + 64 + 512) + 0.5 * 5.0 - 2.0 + 0.25 * second_of_0),
        None,
        None,
        pytest.approx(second_of_0),
    ]
    assert advantages_of(data) == expected


def test_what_a_seat_is_paid_before_its_first_turn_is_no_actions_merit():
    data = one_game([0, 1, 0], [0.0, 0.0, 0.0], [[0, 100], [0, 1]], terminated=1)
    assert advantages_of(data) == pytest.approx([0.0, 1.0])


def test_a_payment_of_the_next_game_never_reaches_the_last_one():
    data = one_game([0, 1, 1, 0, 0], [0.0] * 5, [[0, 0], [1, 2], [50, 60], [3, 70]], terminated=1)
    assert advantages_of(data, gamma=1.0, gae_lambda=1.0) == [1.0, 2.0, None, 3.0]


# --- by the definition -------------------------------------------------------------------------------------------


def random_games(seed, num_steps, num_envs, num_seats, terminated_share, truncated_share):
    """Random turns and ends; NaN in `final_value` wherever it must not be read."""
    rng = np.random.default_rng(seed)
    terminated = rng.random((num_steps, num_envs)) < terminated_share
    truncated = ~terminated & (rng.random((num_steps, num_envs)) < truncated_share)
    final_value = np.where(truncated & (num_seats == 1), rng.normal(0, 3, truncated.shape), np.nan)
    return {
        "reward": torch.tensor(rng.normal(0, 1, (num_steps, num_envs, num_seats)), dtype=torch.float32),
        "value": torch.tensor(rng.normal(0, 3, (num_steps + 1, num_envs)), dtype=torch.float32),
        "seat": torch.tensor(rng.integers(num_seats, size=(num_steps + 1, num_envs)), dtype=torch.int8),
        "terminated": torch.tensor(terminated),
        "truncated": torch.tensor(truncated),
        "final_value": torch.tensor(final_value, dtype=torch.float32),
    }


def games_of(data, n):
    """(first step, last step, value after it of each seat, None where unknown) of each game of env n."""
    num_steps, _, num_seats = data["reward"].shape
    start = 0
    for t in range(num_steps):
        if data["terminated"][t, n]:
            yield start, t, [0.0] * num_seats
            start = t + 1
        elif data["truncated"][t, n]:
            yield start, t, [float(data["final_value"][t, n])] if num_seats == 1 else [None] * num_seats
            start = t + 1
    if start < num_steps:
        mover = int(data["seat"][-1, n])
        yield start, num_steps - 1, [float(data["value"][-1, n]) if p == mover else None for p in range(num_seats)]


def brute_force_advantages(data, gamma, gae_lambda):
    """Each seat's turns of each game as an episode of its own, and Schulman et al. 2016, eq. 16, on that; NaN where the
    next turn of the seat is not known."""
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
                    if next_value is not None
                ]
                for i, t in enumerate(turns[: len(errors)]):
                    advantage[t, n] = sum((gamma * gae_lambda) ** k * error for k, error in enumerate(errors[i:]))
    return advantage


@settings(max_examples=200)
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
    advantage, returns, counts = seat_gae(**data, gamma=gamma, gae_lambda=gae_lambda)
    expected = brute_force_advantages(data, gamma, gae_lambda)
    np.testing.assert_array_equal(counts.numpy(), np.isfinite(expected))
    expected = np.nan_to_num(expected)
    np.testing.assert_allclose(advantage.numpy(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(returns.numpy(), expected + data["value"][:-1].numpy(), rtol=1e-4, atol=1e-4)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), ends=SHARES, gamma=DISCOUNTS, gae_lambda=DISCOUNTS)
def test_with_one_seat_it_is_plain_gae_bit_for_bit(seed, ends, gamma, gae_lambda):
    data = random_games(seed, 12, 3, 1, ends / 2, ends / 2)
    *ours, counts = seat_gae(**data, gamma=gamma, gae_lambda=gae_lambda)
    del data["seat"]
    plain = gae(**{**data, "reward": data["reward"][..., 0]}, gamma=gamma, gae_lambda=gae_lambda)
    assert counts.all()
    for mine, theirs in zip(ours, plain, strict=True):
        assert torch.equal(mine, theirs)


def test_games_of_several_envs_never_leak_into_each_other():
    data = random_games(12, 10, 3, 2, 0.1, 0.1)
    before, _, _ = seat_gae(**data, gamma=0.99, gae_lambda=0.95)
    for name in ("reward", "value", "final_value"):
        data[name][:, 1] += 50.0
    after, _, _ = seat_gae(**data, gamma=0.99, gae_lambda=0.95)
    assert torch.equal(after[:, [0, 2]], before[:, [0, 2]])
    assert (after[:, 1] - before[:, 1]).abs().max() > 1


def test_seat_gae_leaves_its_inputs_as_they_were():
    data = random_games(13, 10, 3, 2, 0.2, 0.2)
    copies = {name: tensor.clone() for name, tensor in data.items()}
    seat_gae(**data, gamma=0.99, gae_lambda=0.95)
    for name, tensor in data.items():
        torch.testing.assert_close(tensor, copies[name], rtol=0, atol=0, equal_nan=True)
