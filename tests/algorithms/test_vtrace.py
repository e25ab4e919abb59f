"""V-trace against the paper's sums of products, against GAE where the policies are one, and by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.algorithms.advantages import gae, plain_vtrace, seat_gae, seat_vtrace, vtrace
from tests.algorithms.test_advantages import random_rollout, single_env
from tests.algorithms.test_seat_gae import games_of, one_game, random_games

SHARES = st.sampled_from([0.0, 0.1, 0.3, 1.0])
DISCOUNTS = st.sampled_from([0.0, 0.5, 0.9, 1.0])
CLIPS = st.sampled_from([0.0, 0.3, 1.0, 1.5, math.inf])
CLIPS_FROM_1 = st.sampled_from([1.0, 1.5, math.inf])
SEEDS = st.integers(0, 2**32 - 1)


def random_log_ratio(seed, shape):
    return torch.tensor(np.random.default_rng([seed, 1]).normal(0, 0.7, shape), dtype=torch.float32)


def by_the_paper(reward, value, after, ratio, *, gamma, gae_lambda, rho_clip, c_clip):
    """Advantages and returns of one chain of steps [K] that ends with the value `after`; Espeholt et al. 2018, eq. 1.

    v_s = V_s + sum over t >= s of gamma^(t - s) (c_s ... c_t-1) rho_t (r_t + gamma V_t+1 - V_t).
    """
    num_steps = len(reward)
    values = [*value, after]
    rho = [min(rho_clip, x) for x in ratio]
    c = [gae_lambda * min(c_clip, x) for x in ratio]
    delta = [rho[t] * (reward[t] + gamma * values[t + 1] - values[t]) for t in range(num_steps)]
    returns = [
        values[s] + sum(gamma ** (t - s) * math.prod(c[s:t]) * delta[t] for t in range(s, num_steps))
        for s in range(num_steps)
    ]
    targets = [*returns, after]
    bootstrap = [gae_lambda * targets[t + 1] + (1 - gae_lambda) * values[t + 1] for t in range(num_steps)]
    return [reward[t] + gamma * bootstrap[t] - values[t] for t in range(num_steps)], returns


def seats_by_the_paper(data, log_ratio, **numbers):
    """Each seat's turns of each game as a chain of its own; advantages and returns [T, N] in float64.

    A last turn whose outcome is not known has advantage 0, and the chain before it ends with its value.
    """
    reward, value, seat = data["reward"].double().numpy(), data["value"].double().numpy(), data["seat"].numpy()
    ratio = log_ratio.double().exp().numpy()
    num_steps, num_envs, num_seats = reward.shape
    advantage, returns = np.zeros((num_steps, num_envs)), value[:-1].copy()
    for n in range(num_envs):
        for start, stop, after in games_of(data, n):
            for p in range(num_seats):
                turns = [t for t in range(start, stop + 1) if seat[t, n] == p]
                ends = [*turns[1:], stop + 1]
                value_after = after[p]
                if value_after is None and turns:
                    value_after = value[turns.pop(), n]
                paid = [reward[t:end, n, p].sum() for t, end in zip(turns, ends, strict=False)]
                chain = by_the_paper(paid, value[turns, n], value_after, ratio[turns, n], **numbers)
                advantage[turns, n], returns[turns, n] = chain
    return advantage, returns


def as_seats(data):
    """A rollout of `gae` as that of a game of one seat."""
    return {
        "reward": data["reward"].unsqueeze(-1),
        "value": data["value"],
        "seat": torch.zeros(data["value"].shape, dtype=torch.int8),
        "terminated": data["terminated"],
        "truncated": data["truncated"],
        "final_value": data["final_value"],
    }


def assert_close(ours, expected):
    for mine, theirs in zip(ours, expected, strict=True):
        scale = max(1.0, np.abs(theirs).max())  # ratios without a clip multiply up
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-4, atol=1e-5 * scale)


@settings(max_examples=100)
@given(
    seed=SEEDS,
    num_steps=st.integers(1, 20),
    terminated_share=SHARES,
    truncated_share=SHARES,
    gamma=DISCOUNTS,
    gae_lambda=DISCOUNTS,
    rho_clip=CLIPS,
    c_clip=CLIPS,
)
def test_the_compiled_vtrace_and_that_of_a_game_of_one_seat_are_the_plain_one(
    seed, num_steps, terminated_share, truncated_share, gamma, gae_lambda, rho_clip, c_clip
):
    data = random_rollout(seed, num_steps, 5, terminated_share, truncated_share)
    log_ratio = random_log_ratio(seed, (num_steps, 5))
    log_ratio[0, 0] = 1000.0  # whose exponential is infinite
    numbers = {"gamma": gamma, "gae_lambda": gae_lambda, "rho_clip": min(rho_clip, 9.0), "c_clip": min(c_clip, 9.0)}
    expected = plain_vtrace(**data, log_ratio=log_ratio, **numbers)
    seats = seat_vtrace(**as_seats(data), log_ratio=log_ratio, **numbers)
    for ours in (vtrace(**data, log_ratio=log_ratio, **numbers), (seats.advantage, seats.returns)):
        for mine, plain in zip(ours, expected, strict=True):
            scale = max(1.0, float(plain.abs().max()))  # products of ratios above 1 grow with the steps
            torch.testing.assert_close(mine / scale, plain / scale, rtol=1e-5, atol=1e-5)


# --- by the paper ------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    seed=SEEDS,
    num_steps=st.integers(1, 12),
    num_envs=st.integers(1, 3),
    terminated_share=SHARES,
    truncated_share=SHARES,
    gamma=DISCOUNTS,
    gae_lambda=DISCOUNTS,
    rho_clip=CLIPS,
    c_clip=CLIPS,
)
def test_vtrace_is_the_papers_sum_of_products_up_to_the_end_of_the_episode(
    seed, num_steps, num_envs, terminated_share, truncated_share, **numbers
):
    data = random_rollout(seed, num_steps, num_envs, terminated_share, truncated_share)
    log_ratio = random_log_ratio(seed, (num_steps, num_envs))
    expected = seats_by_the_paper(as_seats(data), log_ratio, **numbers)
    assert_close(vtrace(**data, log_ratio=log_ratio, **numbers), expected)


@settings(max_examples=200)
@given(
    seed=SEEDS,
    num_steps=st.integers(1, 14),
    num_envs=st.integers(1, 3),
    num_seats=st.integers(1, 4),
    terminated_share=SHARES,
    truncated_share=SHARES,
    gamma=DISCOUNTS,
    gae_lambda=DISCOUNTS,
    rho_clip=CLIPS,
    c_clip=CLIPS,
)
def test_seat_vtrace_is_the_papers_sum_over_each_seats_own_chain_of_turns(
    seed, num_steps, num_envs, num_seats, terminated_share, truncated_share, **numbers
):
    data = random_games(seed, num_steps, num_envs, num_seats, terminated_share, truncated_share)
    log_ratio = random_log_ratio(seed, (num_steps, num_envs))
    expected = seats_by_the_paper(data, log_ratio, **numbers)
    assert_close(seat_vtrace(**data, log_ratio=log_ratio, **numbers)[:2], expected)


@settings(max_examples=60)
@given(seed=SEEDS, ends=SHARES, gamma=DISCOUNTS, rho_clip=CLIPS, c_clip=CLIPS)
def test_unless_told_otherwise_the_advantage_is_that_of_the_paper(seed, ends, gamma, rho_clip, c_clip):
    data = random_rollout(seed, 9, 3, ends / 2, ends / 2)
    log_ratio = random_log_ratio(seed, (9, 3))
    advantage, returns = vtrace(**data, log_ratio=log_ratio, gamma=gamma, rho_clip=rho_clip, c_clip=c_clip)
    following = torch.cat([returns[1:], data["value"][-1:]])
    following = torch.where(data["truncated"], data["final_value"], following)
    following = torch.where(data["terminated"], 0.0, following)
    expected = data["reward"] + gamma * following - data["value"][:-1]  # section 4.2: r_t + gamma v_t+1 - V(x_t)
    assert_close([advantage], [expected.numpy()])


def test_the_clips_are_1_unless_told_otherwise():
    data, log_ratio = random_rollout(1, 9, 3, 0.1, 0.1), random_log_ratio(1, (9, 3))
    told = vtrace(**data, log_ratio=log_ratio, gamma=0.9, gae_lambda=1.0, rho_clip=1.0, c_clip=1.0)
    for ours, theirs in zip(vtrace(**data, log_ratio=log_ratio, gamma=0.9), told, strict=True):
        assert torch.equal(ours, theirs)


# --- where the policy that learns is the one that acted ----------------------------------------------------------


@settings(max_examples=100)
@given(seed=SEEDS, ends=SHARES, gamma=DISCOUNTS, gae_lambda=DISCOUNTS, rho_clip=CLIPS_FROM_1, c_clip=CLIPS_FROM_1)
def test_on_policy_vtrace_is_gae_bit_for_bit_for_every_lambda(seed, ends, gamma, gae_lambda, rho_clip, c_clip):
    data = random_rollout(seed, 12, 3, ends / 2, ends / 2)
    clips = {"rho_clip": rho_clip, "c_clip": c_clip}
    ours = vtrace(**data, log_ratio=torch.zeros(12, 3), gamma=gamma, gae_lambda=gae_lambda, **clips)
    for mine, theirs in zip(ours, gae(**data, gamma=gamma, gae_lambda=gae_lambda), strict=True):
        assert torch.equal(mine, theirs)


@settings(max_examples=100)
@given(seed=SEEDS, ends=SHARES, gamma=DISCOUNTS, gae_lambda=DISCOUNTS, rho_clip=CLIPS_FROM_1, c_clip=CLIPS_FROM_1)
def test_on_policy_seat_vtrace_is_seat_gae_bit_for_bit(seed, ends, gamma, gae_lambda, rho_clip, c_clip):
    data = random_games(seed, 12, 2, 3, ends / 2, ends / 2)
    clips = {"rho_clip": rho_clip, "c_clip": c_clip}
    ours = seat_vtrace(**data, log_ratio=torch.zeros(12, 2), gamma=gamma, gae_lambda=gae_lambda, **clips)
    for mine, theirs in zip(ours, seat_gae(**data, gamma=gamma, gae_lambda=gae_lambda), strict=True):
        assert torch.equal(mine, theirs)


# --- by hand -----------------------------------------------------------------------------------------------------


def column(*numbers):
    return torch.tensor(numbers).log().unsqueeze(1)


def test_a_rare_action_moves_the_value_by_its_ratio_and_the_advantage_not_at_all():
    data = single_env([1.0], [2.0, 4.0])
    advantage, returns = vtrace(**data, log_ratio=column(0.25), gamma=0.5)
    error = 1.0 + 0.5 * 4.0 - 2.0
    assert returns.item() == pytest.approx(2.0 + 0.25 * error)
    assert advantage.item() == pytest.approx(error)


def test_what_follows_counts_by_the_ratio_of_the_action_before_it():
    data = single_env([1.0, 8.0], [2.0, 4.0, 6.0], terminated=[1])
    advantage, returns = vtrace(**data, log_ratio=column(0.25, 0.5), gamma=0.5, gae_lambda=0.5)
    last = 0.5 * (8.0 - 4.0)
    first_error = 1.0 + 0.5 * 4.0 - 2.0
    assert returns[:, 0].tolist() == pytest.approx([2.0 + 0.25 * first_error + 0.5 * 0.5 * 0.25 * last, 4.0 + last])
    assert advantage[:, 0].tolist() == pytest.approx([first_error + 0.5 * 0.5 * last, 8.0 - 4.0])


def test_each_clip_cuts_its_own_ratio():
    data = single_env([0.0, 1.0], [0.0, 0.0, 0.0])
    _, returns = vtrace(**data, log_ratio=column(8.0, 8.0), gamma=1.0, rho_clip=4.0, c_clip=2.0)
    assert returns[:, 0].tolist() == pytest.approx([2.0 * 4.0 * 1.0, 4.0 * 1.0])


def test_a_seat_is_weighed_by_its_own_actions_only():
    data = one_game([0, 1, 0, 1, 0], [0.0] * 5, [[0, 0], [0, 0], [1, 0], [0, 1]], terminated=3)
    _, returns, _ = seat_vtrace(**data, log_ratio=column(0.5, 0.25, 1.0, 1.0), gamma=1.0)
    assert returns[:, 0].tolist() == pytest.approx([0.5, 0.25, 1.0, 1.0])


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_what_happens_after_an_episode_ends_never_reaches_back_into_it(flag):
    data, log_ratio = random_rollout(11, 8, 1, 0.0, 0.0), random_log_ratio(11, (8, 1))
    data["final_value"].zero_()
    data[flag][4] = True
    before = torch.stack(vtrace(**data, log_ratio=log_ratio, gamma=0.99))
    data["reward"][5:] += 100.0
    data["value"][5:] -= 100.0
    log_ratio[5:] -= 0.5
    after = torch.stack(vtrace(**data, log_ratio=log_ratio, gamma=0.99))
    assert torch.equal(after[:, :5], before[:, :5])
    assert (after[:, 5:] - before[:, 5:]).abs().min() > 1


# --- extremes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extreme", [1000.0, math.inf])
def test_ratios_beyond_all_bounds_give_what_their_clips_say(extreme):
    data, sign = (
        random_rollout(3, 16, 4, 0.1, 0.1),
        torch.randn(16, 4, generator=torch.Generator().manual_seed(0)).sign(),
    )
    numbers = {"gamma": 0.99, "gae_lambda": 0.95, "rho_clip": 1.5, "c_clip": 1.0}
    wild = vtrace(**data, log_ratio=extreme * sign, **numbers)
    never_or_clipped = seats_by_the_paper(as_seats(data), 30.0 * sign, **numbers)
    assert_close(wild, never_or_clipped)


def test_with_no_clip_at_all_a_ratio_beyond_bounds_is_still_a_number():
    data = single_env([1.0, 1.0], [0.0, 0.0, 0.0])
    log_ratio = torch.tensor([[1000.0], [1000.0]])
    for part in vtrace(**data, log_ratio=log_ratio, gamma=0.9, rho_clip=math.inf, c_clip=math.inf):
        assert torch.isfinite(part).all()


def test_an_error_of_zero_stays_zero_under_an_unbounded_ratio():
    data = single_env([0.0, 0.0], [0.0, 0.0, 0.0])
    ours = vtrace(**data, log_ratio=torch.full((2, 1), 1000.0), gamma=0.9, rho_clip=math.inf, c_clip=math.inf)
    assert not torch.stack(ours).any()


def test_vtrace_leaves_its_inputs_as_they_were():
    rollout = {**random_rollout(13, 8, 3, 0.2, 0.2), "log_ratio": random_log_ratio(13, (8, 3))}
    games = {**random_games(13, 8, 3, 2, 0.2, 0.2), "log_ratio": random_log_ratio(13, (8, 3))}
    for function, data in ((vtrace, rollout), (seat_vtrace, games)):
        copies = {name: tensor.clone() for name, tensor in data.items()}
        function(**data, gamma=0.99, gae_lambda=0.95)
        for name, tensor in data.items():
            torch.testing.assert_close(tensor, copies[name], rtol=0, atol=0, equal_nan=True)
