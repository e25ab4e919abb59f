"""Advantages and reward scaling: by hand, and against their definitions written out as plain loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.algorithms.advantages import gae, plain_gae, plain_vtrace, seat_gae, seat_vtrace, vtrace
from scramjet.algorithms.reward_scaling import RewardScaler

SHARES = st.sampled_from([0.0, 0.1, 0.3, 1.0])
DISCOUNTS = st.sampled_from([0.0, 0.5, 0.9, 1.0])
GAMES = {
    "seed": st.integers(0, 2**32 - 1), "num_steps": st.integers(1, 14), "num_envs": st.integers(1, 3),
    "num_seats": st.integers(1, 4), "terminated_share": SHARES, "truncated_share": SHARES,
}  # fmt: skip
CLIPS = [0.0, 0.3, 1.0, 1.5, math.inf]
HALF = {"gamma": 0.5, "gae_lambda": 0.5}


def random_games(seed, num_steps, num_envs, num_seats=1, terminated_share=0.2, truncated_share=0.2):
    """Numbers as `seat_gae` takes them: random turns and ends; NaN in `final_value` wherever it must not be read."""
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


def of_one_seat(data):
    """Games of one seat as numbers that `gae` takes."""
    return {name: each for name, each in data.items() if name != "seat"} | {"reward": data["reward"][..., 0]}


def random_log_ratio(seed, shape):
    return torch.tensor(np.random.default_rng([seed, 1]).normal(0, 0.7, shape), dtype=torch.float32)


def one_game(seats, value, reward, *, terminated=None, truncated=None, final_value=math.nan):
    """Numbers as `seat_gae` takes them, of one env: one more seat and value than rewards, a step where it ended."""
    steps = torch.arange(len(reward)).unsqueeze(1)
    return {
        "reward": torch.tensor(reward).float().unsqueeze(1),
        "value": torch.tensor(value).float().unsqueeze(1),
        "seat": torch.tensor(seats, dtype=torch.int8).unsqueeze(1),
        "terminated": steps == (-1 if terminated is None else terminated),
        "truncated": steps == (-1 if truncated is None else truncated),
        "final_value": torch.full(steps.shape, final_value),
    }


def single_env(reward, value, **ends):
    return of_one_seat(one_game([0] * len(value), value, [[each] for each in reward], **ends))


# --- by the definition -------------------------------------------------------------------------------------------


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


def chain_by_the_paper(reward, value, after, ratio, *, gamma, gae_lambda, rho_clip, c_clip):
    """Advantages and returns of one chain of steps [K] that ends with the value `after`; Espeholt et al. 2018, eq. 1.

    v_s = V_s + sum over t >= s of gamma^(t - s) (c_s ... c_t-1) rho_t (r_t + gamma V_t+1 - V_t). Where ratios and their
    clips are 1, v_s - V_s is the sum of (gamma lambda)^(t - s) delta_t: Schulman et al. 2016, eq. 16.
    """
    num_steps, values = len(reward), [*value, after]
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


def by_the_paper(data, log_ratio, *, gamma, gae_lambda, rho_clip=1.0, c_clip=1.0):
    """Each seat's turns of each game as a chain of its own; advantages and returns [T, N] in float64, and which count.

    A last turn whose outcome is not known does not count, and the chain before it ends with its value.
    """
    reward, value, seat = data["reward"].double().numpy(), data["value"].double().numpy(), data["seat"].numpy()
    ratio = log_ratio.double().exp().numpy()
    num_steps, num_envs, num_seats = reward.shape
    advantage, returns, counts = (
        np.zeros((num_steps, num_envs)),
        value[:-1].copy(),
        np.ones((num_steps, num_envs), bool),
    )
    numbers = {"gamma": gamma, "gae_lambda": gae_lambda, "rho_clip": rho_clip, "c_clip": c_clip}
    for n in range(num_envs):
        for start, stop, after in games_of(data, n):
            for p in range(num_seats):
                turns = [t for t in range(start, stop + 1) if seat[t, n] == p]
                ends = [*turns[1:], stop + 1]
                value_after = after[p]
                if value_after is None and turns:
                    counts[turns[-1], n] = False
                    value_after = value[turns.pop(), n]
                paid = [reward[t:end, n, p].sum() for t, end in zip(turns, ends, strict=False)]
                chain = chain_by_the_paper(paid, value[turns, n], value_after, ratio[turns, n], **numbers)
                advantage[turns, n], returns[turns, n] = chain
    return advantage, returns, counts


def assert_close(ours, expected):
    for mine, theirs in zip(ours, expected, strict=True):
        scale = max(1.0, np.abs(theirs).max())  # ratios without a clip multiply up
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-4, atol=1e-5 * scale)


@settings(max_examples=150)
@given(**GAMES, gamma=DISCOUNTS, gae_lambda=DISCOUNTS, clip=st.sampled_from([1.0, 1.5, math.inf]))
def test_gae_is_the_sum_of_discounted_errors_over_each_seats_own_turns_and_on_policy_vtrace_is_gae(
    gamma, gae_lambda, clip, **games
):
    """Bit for bit: vtrace where the policy that learns is the one that acted, and games of one seat."""
    data, numbers = random_games(**games), {"gamma": gamma, "gae_lambda": gae_lambda}
    on_policy, clips = torch.zeros(data["value"][:-1].shape), {"rho_clip": clip, "c_clip": clip}
    found = seat_gae(**data, **numbers)
    assert_close(found, by_the_paper(data, on_policy, **numbers))
    same = [seat_vtrace(**data, log_ratio=on_policy, **numbers, **clips)]
    if games["num_seats"] == 1:
        alone = of_one_seat(data)
        same += [gae(**alone, **numbers), vtrace(**alone, log_ratio=on_policy, **numbers, **clips)]
        assert_close(plain_gae(**alone, **numbers), [each.numpy() for each in found[:2]])
        assert found.counts.all()
    for other in same:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(other, found, strict=False))


@settings(max_examples=200)
@given(**GAMES, gamma=DISCOUNTS, gae_lambda=DISCOUNTS, rho_clip=st.sampled_from(CLIPS), c_clip=st.sampled_from(CLIPS))
def test_vtrace_is_the_papers_sum_of_products_over_each_seats_own_turns(gamma, gae_lambda, rho_clip, c_clip, **games):
    data = random_games(**games)
    log_ratio = random_log_ratio(games["seed"], data["value"][:-1].shape)
    numbers = {"gamma": gamma, "gae_lambda": gae_lambda, "rho_clip": rho_clip, "c_clip": c_clip}
    expected = by_the_paper(data, log_ratio, **numbers)
    assert_close(seat_vtrace(**data, log_ratio=log_ratio, **numbers), expected)
    if games["num_seats"] == 1:
        alone = of_one_seat(data)
        assert_close(vtrace(**alone, log_ratio=log_ratio, **numbers), expected[:2])
        assert_close(plain_vtrace(**alone, log_ratio=log_ratio, **numbers), expected[:2])


def test_clips_and_lambda_of_vtrace_are_1_unless_told_otherwise():
    data, log_ratio = of_one_seat(random_games(1, 9, 3)), random_log_ratio(1, (9, 3))
    told = vtrace(**data, log_ratio=log_ratio, gamma=0.9, gae_lambda=1.0, rho_clip=1.0, c_clip=1.0)
    assert torch.equal(torch.stack(vtrace(**data, log_ratio=log_ratio, gamma=0.9)), torch.stack(told))


@pytest.mark.rest
def test_the_scan_is_the_plain_recursion(triton_device, monkeypatch):
    from scramjet.algorithms import advantage_scan

    monkeypatch.setattr(advantage_scan, "MOST_STEPS", 16)
    for num_steps, num_rows in ((1, 1), (5, 17), (16, 16), (37, 20)):
        for ends, gae_lambda in ((0.0, 1.0), (0.05, 0.95), (0.4, 0.0)):
            rollout = of_one_seat(random_games(num_steps, num_steps, 2 * num_rows, 1, ends, ends))
            if ends:
                rollout["value"][num_steps // 2, 0] = torch.inf  # counts only in its own episode
            for stride in (1, 2):  # contiguous or not
                data, numbers = {name: each[:, ::stride] for name, each in rollout.items()}, {"gamma": 0.99}
                expected = plain_gae(**data, **numbers, gae_lambda=gae_lambda)
                there = {name: each.to(triton_device) for name, each in data.items()}
                found = advantage_scan.gae_by_scan(**there, **numbers, gae_lambda=gae_lambda)
                for mine, wanted in zip(found, expected, strict=True):
                    torch.testing.assert_close(mine.cpu(), wanted, rtol=1e-5, atol=1e-4, equal_nan=True)


# --- by hand -----------------------------------------------------------------------------------------------------


def test_the_last_row_of_a_rollout_is_bootstrapped_from_what_its_episode_comes_to():
    for ends, after in (({"terminated": 0}, 0.0), ({"truncated": 0, "final_value": 7.0}, 7.0), ({}, 4.0)):
        advantage, returns = gae(**single_env([1.0], [2.0, 4.0], **ends), gamma=0.5, gae_lambda=0.95)
        assert advantage.item() == pytest.approx(1.0 + 0.5 * after - 2.0), ends
        assert returns.item() == pytest.approx(1.0 + 0.5 * after), ends


TURNS = {
    "what a seat is paid on another's turn is the reward of its own last action": (
        one_game([0, 1, 0, 1, 0], [1, 2, 3, 4, 99], [[1, 0], [10, 0], [0, 20], [0, 2]], terminated=3),
        [(1 + 10) + 0.5 * 3 - 1 + 0.25 * -3, 20 + 0.5 * 4 - 2 + 0.25 * -2, 0 - 3, 2 - 4],
    ),
    "a game that the opponent ends has no future for the other seat either": (
        one_game([0, 1, 0], [3, 4, 100], [[0, 0], [-1, 1]], terminated=1),
        [-1 - 3, 1 - 4],
    ),
    "the last turn of each seat in a game cut short does not count, and the one before goes up to it": (
        one_game([0, 1, 0, 1, 0], [1, 2, 3, 9, 6], [[1, 2], [3, 4], [0, 0], [0, 1]], truncated=2),
        [1 + 3 + 0.5 * 3 - 1, None, None, None],
    ),
    "the end of a rollout is bootstrapped for the seat to move and leaves the others open": (
        one_game([1, 0, 1, 0], [2, 5, 7, 10], [[7, 1], [1, 3], [2, 4]]),
        [1 + 3 + 0.5 * 7 - 2, 1 + 2 + 0.5 * 10 - 5, None],
    ),
    "a seat that moves several times in a row discounts each of its moves": (
        one_game([0, 0, 1, 0, 1], [1, 2, 3, 4, 9], [[1, 0], [2, 0], [4, 0], [8, 5]], terminated=3),
        [1 + 0.5 * 2 - 1 + 0.25 * 7, 2 + 4 + 0.5 * 4 - 2 + 0.25 * 4, 5 - 3, 8 - 4],
    ),
    "three seats each have a chain of their own": (
        one_game(
            [2, 0, 2, 1, 0, 0], [1, 2, 3, 4, 5, 10],
            [[1, 2, 4], [8, 16, 32], [64, 128, 256], [512, 1024, 2048], [4096, 8192, 16384]],
        ),
        [4 + 32 + 0.5 * 3 - 1, 8 + 64 + 512 + 0.5 * 5 - 2 + 0.25 * 4096, None, None, 4096 + 0.5 * 10 - 5],
    ),
    "what a seat is paid before its first turn is no action's merit": (
        one_game([0, 1, 0], [0, 0, 0], [[0, 100], [0, 1]], terminated=1),
        [0, 1],
    ),
    "a payment of the next game never reaches the last one": (
        one_game([0, 1, 1, 0, 0], [0] * 5, [[0, 0], [1, 2], [50, 60], [3, 70]], terminated=1),
        [0.5 * 0 + 1, 2, None, 3],
    ),
}  # fmt: skip


def test_chains_of_turns_by_hand_with_gamma_and_lambda_one_half():
    for case, (data, expected) in TURNS.items():
        advantage, returns, counts = seat_gae(**data, **HALF)
        torch.testing.assert_close(returns, advantage + data["value"][:-1])
        assert counts.flatten().tolist() == [each is not None for each in expected], case
        assert advantage.flatten().tolist() == pytest.approx([each or 0.0 for each in expected]), case


def ratios(*numbers):
    return torch.tensor(numbers).log().unsqueeze(1)


def test_ratios_of_vtrace_by_hand():
    """A rare action moves its value by its ratio and its advantage not at all; what follows counts by the ratio of the
    action before it; each clip cuts its own ratio; a seat is weighed by its own actions only."""
    advantage, returns = vtrace(**single_env([1.0], [2.0, 4.0]), log_ratio=ratios(0.25), gamma=0.5)
    error = 1.0 + 0.5 * 4.0 - 2.0
    assert (returns.item(), advantage.item()) == pytest.approx((2.0 + 0.25 * error, error))

    data = single_env([1.0, 8.0], [2.0, 4.0, 6.0], terminated=1)
    advantage, returns = vtrace(**data, log_ratio=ratios(0.25, 0.5), **HALF)
    last = 0.5 * (8.0 - 4.0)
    assert returns[:, 0].tolist() == pytest.approx([2.0 + 0.25 * error + 0.5 * 0.5 * 0.25 * last, 4.0 + last])
    assert advantage[:, 0].tolist() == pytest.approx([error + 0.5 * 0.5 * last, 8.0 - 4.0])

    data = single_env([0.0, 1.0], [0.0, 0.0, 0.0])
    _, returns = vtrace(**data, log_ratio=ratios(8.0, 8.0), gamma=1.0, rho_clip=4.0, c_clip=2.0)
    assert returns[:, 0].tolist() == pytest.approx([2.0 * 4.0 * 1.0, 4.0 * 1.0])

    data = one_game([0, 1, 0, 1, 0], [0.0] * 5, [[0, 0], [0, 0], [1, 0], [0, 1]], terminated=3)
    _, returns, _ = seat_vtrace(**data, log_ratio=ratios(0.5, 0.25, 1.0, 1.0), gamma=1.0)
    assert returns[:, 0].tolist() == pytest.approx([0.5, 0.25, 1.0, 1.0])


def test_ratios_beyond_all_bounds_give_what_their_clips_say_and_without_clips_still_numbers():
    data, sign = random_games(3, 16, 4), random_log_ratio(0, (16, 4)).sign()
    numbers = {"gamma": 0.99, "gae_lambda": 0.95, "rho_clip": 1.5, "c_clip": 1.0}
    never_or_clipped = by_the_paper(data, 30.0 * sign, **numbers)[:2]
    for extreme in (1000.0, math.inf):
        assert_close(vtrace(**of_one_seat(data), log_ratio=extreme * sign, **numbers), never_or_clipped)
    unbounded = {"log_ratio": torch.full((2, 1), 1000.0), "gamma": 0.9, "rho_clip": math.inf, "c_clip": math.inf}
    for reward in (0.0, 1.0):
        found = torch.stack(vtrace(**single_env([reward] * 2, [0.0] * 3), **unbounded))
        assert found.isfinite().all()
        assert bool(found.any()) == bool(reward), "an error of zero stays zero"


def test_inputs_are_left_as_they_were():
    games = random_games(13, 8, 3, 2)
    alone = of_one_seat(random_games(13, 8, 3))
    ratio = {"log_ratio": random_log_ratio(13, (8, 3))}
    for function, data in ((gae, alone), (seat_gae, games), (vtrace, alone | ratio), (seat_vtrace, games | ratio)):
        copies = {name: tensor.clone() for name, tensor in data.items()}
        function(**data, gamma=0.99, gae_lambda=0.95)
        for name, tensor in data.items():
            torch.testing.assert_close(tensor, copies[name], rtol=0, atol=0, equal_nan=True, msg=name)


# --- reward scaling ----------------------------------------------------------------------------------------------


def plain_returns(reward, ended, gamma):
    """The discounted return of each row's episode so far, [T, R]."""
    running = torch.zeros(reward.shape[1], dtype=torch.float64)
    for now, is_over in zip(reward, ended, strict=True):
        running = gamma * running + now
        yield running.clone()
        running[is_over] = 0.0


def test_rewards_are_scaled_by_the_deviation_of_all_discounted_returns_so_far_carried_over_between_rollouts():
    """Engstrom et al. 2020, with every discounted return so far kept, and its deviation taken afresh."""
    for gamma in (0.0, 0.9, 1.0):
        scaler, reward, draw = RewardScaler(3, gamma=gamma), torch.randn(28, 3) * 5 + 1, torch.rand(28, 3)
        terminated, truncated = draw < 0.15, draw > 0.85
        returns = torch.stack(list(plain_returns(reward, terminated | truncated, gamma)))
        for first in range(0, 28, 7):
            part = slice(first, first + 7)
            scaled = scaler.scale(reward[part], terminated[part], truncated[part])
            deviation = np.sqrt(np.var(returns[: first + 7].numpy()) + 1e-8)
            np.testing.assert_allclose(scaled, (reward[part] / deviation).clamp(-10, 10), rtol=1e-5, atol=1e-6)


def test_scaled_rewards_are_clipped_and_the_rollout_keeps_its_own_and_rewards_of_zero_stay_zero():
    never, reward = torch.zeros(1000, 1, dtype=torch.bool), torch.zeros(1000, 1)
    assert torch.equal(RewardScaler(1, gamma=0.99).scale(reward, never, never), reward)
    reward[500] = 1e6
    scaled = RewardScaler(1, gamma=0.0).scale(reward, never, never)
    assert scaled[500].item() == 10.0
    assert reward[500].item() == 1e6
