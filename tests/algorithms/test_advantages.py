"""Advantages and reward scaling, against their definitions written out as plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.algorithms.advantages import gae, plain_gae, seat_gae
from scramjet.algorithms.reward_scaling import RewardScaler

SHARES = st.sampled_from([0.0, 0.1, 0.5, 1.0])
DISCOUNTS = st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0])


def random_rollout(seed, num_steps, num_envs, terminated_share, truncated_share):
    """Numbers as `gae` takes them; NaN in `final_value` wherever it must not be read."""
    rng = np.random.default_rng(seed)
    draw = rng.random((num_steps, num_envs))
    terminated = draw < terminated_share
    truncated = ~terminated & (rng.random((num_steps, num_envs)) < truncated_share)
    final_value = np.where(truncated, rng.normal(0, 3, (num_steps, num_envs)), np.nan)
    return {
        "reward": torch.tensor(rng.normal(0, 1, (num_steps, num_envs)), dtype=torch.float32),
        "value": torch.tensor(rng.normal(0, 3, (num_steps + 1, num_envs)), dtype=torch.float32),
        "terminated": torch.tensor(terminated),
        "truncated": torch.tensor(truncated),
        "final_value": torch.tensor(final_value, dtype=torch.float32),
    }


def brute_force_advantages(data, gamma, gae_lambda):
    """Schulman et al. 2016, eq. 16: A_t = sum over l of (gamma lambda)^l delta_{t+l}, up to the episode's end."""
    reward, value = data["reward"].double().numpy(), data["value"].double().numpy()
    terminated, truncated = data["terminated"].numpy(), data["truncated"].numpy()
    final_value = data["final_value"].double().numpy()
    num_steps, num_envs = reward.shape
    advantage = np.zeros((num_steps, num_envs))
    for n in range(num_envs):
        for t in range(num_steps):
            for later in range(t, num_steps):
                if terminated[later, n]:
                    after = 0.0
                elif truncated[later, n]:
                    after = final_value[later, n]
                else:
                    after = value[later + 1, n]
                delta = reward[later, n] + gamma * after - value[later, n]
                advantage[t, n] += (gamma * gae_lambda) ** (later - t) * delta
                if terminated[later, n] or truncated[later, n]:
                    break
    return advantage


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_steps=st.integers(1, 12),
    num_envs=st.integers(1, 4),
    terminated_share=SHARES,
    truncated_share=SHARES,
    gamma=DISCOUNTS,
    gae_lambda=DISCOUNTS,
)
def test_gae_is_the_sum_of_discounted_errors_up_to_the_end_of_the_episode(
    seed, num_steps, num_envs, terminated_share, truncated_share, gamma, gae_lambda
):
    data = random_rollout(seed, num_steps, num_envs, terminated_share, truncated_share)
    advantage, returns = gae(**data, gamma=gamma, gae_lambda=gae_lambda)
    expected = brute_force_advantages(data, gamma, gae_lambda)
    np.testing.assert_allclose(advantage.numpy(), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(returns.numpy(), expected + data["value"][:-1].numpy(), rtol=1e-4, atol=1e-4)


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_steps=st.integers(1, 20),
    terminated_share=SHARES,
    truncated_share=SHARES,
    gamma=DISCOUNTS,
    gae_lambda=DISCOUNTS,
)
def test_the_compiled_gae_and_that_of_a_game_of_one_seat_are_the_plain_one(
    seed, num_steps, terminated_share, truncated_share, gamma, gae_lambda
):
    data = random_rollout(seed, num_steps, 5, terminated_share, truncated_share)
    numbers = {"gamma": gamma, "gae_lambda": gae_lambda}
    expected = plain_gae(**data, **numbers)
    one_seat = {"reward": data["reward"].unsqueeze(-1), "seat": torch.zeros(num_steps + 1, 5, dtype=torch.int8)}
    estimate = seat_gae(**{**data, **one_seat}, **numbers)
    for advantage, returns in (gae(**data, **numbers), (estimate.advantage, estimate.returns)):
        torch.testing.assert_close(advantage, expected[0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(returns, expected[1], rtol=1e-5, atol=1e-5)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), ends=SHARES, gamma=DISCOUNTS)
def test_with_lambda_1_the_return_is_the_discounted_sum_of_rewards_and_of_the_value_where_play_stopped(
    seed, ends, gamma
):
    data = random_rollout(seed, 9, 3, ends / 2, ends / 2)
    advantage, returns = gae(**data, gamma=gamma, gae_lambda=1.0)
    following = data["value"][-1].double()
    for t in reversed(range(9)):
        following = torch.where(data["truncated"][t], data["final_value"][t].double(), following)
        following = torch.where(data["terminated"][t], torch.zeros(3, dtype=torch.float64), following)
        following = data["reward"][t].double() + gamma * following
        np.testing.assert_allclose(returns[t].numpy(), following.numpy(), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(advantage[t], following - data["value"][t], rtol=1e-4, atol=1e-4)


def test_with_lambda_0_the_advantage_is_the_one_step_error():
    data = random_rollout(5, 6, 2, 0.0, 0.0)
    advantage, _ = gae(**data, gamma=0.9, gae_lambda=0.0)
    expected = data["reward"] + 0.9 * data["value"][1:] - data["value"][:-1]
    torch.testing.assert_close(advantage, expected)


def single_env(reward, value, *, terminated=(), truncated=(), final_value=0.0):
    num_steps = len(reward)
    flags = {"terminated": torch.zeros(num_steps, 1, dtype=torch.bool), "truncated": torch.zeros(num_steps, 1).bool()}
    for t in terminated:
        flags["terminated"][t] = True
    for t in truncated:
        flags["truncated"][t] = True
    return {
        "reward": torch.tensor(reward).float().unsqueeze(1),
        "value": torch.tensor(value).float().unsqueeze(1),
        "final_value": torch.full((num_steps, 1), final_value),
        **flags,
    }


def test_a_terminated_last_row_is_not_bootstrapped():
    data = single_env([1.0], [2.0, 1000.0], terminated=[0])
    advantage, returns = gae(**data, gamma=0.9, gae_lambda=0.95)
    assert advantage.item() == pytest.approx(1.0 - 2.0)
    assert returns.item() == pytest.approx(1.0)


def test_a_truncated_last_row_is_bootstrapped_from_its_own_last_observation_not_from_the_next_episode():
    data = single_env([1.0], [2.0, 1000.0], truncated=[0], final_value=7.0)
    advantage, _ = gae(**data, gamma=0.5, gae_lambda=0.95)
    assert advantage.item() == pytest.approx(1.0 + 0.5 * 7.0 - 2.0)


def test_a_last_row_that_goes_on_is_bootstrapped_from_what_comes_after_the_rollout():
    data = single_env([1.0], [2.0, 4.0])
    advantage, _ = gae(**data, gamma=0.5, gae_lambda=0.95)
    assert advantage.item() == pytest.approx(1.0 + 0.5 * 4.0 - 2.0)


def test_truncation_and_termination_at_the_same_place_differ_by_exactly_the_discounted_future():
    ended = single_env([0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], terminated=[1], final_value=10.0)
    cut = single_env([0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], truncated=[1], final_value=10.0)
    difference = gae(**cut, gamma=0.9, gae_lambda=0.8)[0] - gae(**ended, gamma=0.9, gae_lambda=0.8)[0]
    torch.testing.assert_close(difference.squeeze(1), torch.tensor([0.9 * 0.8 * 9.0, 9.0, 0.0]))


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_what_happens_after_an_episode_ends_never_reaches_back_into_it(flag):
    data = random_rollout(11, 8, 1, 0.0, 0.0)
    data["final_value"].zero_()
    data[flag][4] = True
    before, _ = gae(**data, gamma=0.99, gae_lambda=0.95)
    data["reward"][5:] += 100.0
    data["value"][5:] -= 100.0
    after, _ = gae(**data, gamma=0.99, gae_lambda=0.95)
    torch.testing.assert_close(after[:5], before[:5], rtol=0, atol=0)
    assert (after[5:] - before[5:]).abs().min() > 1


def test_envs_never_leak_into_each_other():
    data = random_rollout(12, 8, 3, 0.1, 0.1)
    before, _ = gae(**data, gamma=0.99, gae_lambda=0.95)
    for name in ("reward", "value", "final_value"):
        data[name][:, 1] += 50.0
    after, _ = gae(**data, gamma=0.99, gae_lambda=0.95)
    torch.testing.assert_close(after[:, [0, 2]], before[:, [0, 2]], rtol=0, atol=0)
    assert (after[:, 1] - before[:, 1]).abs().max() > 1


def test_gae_leaves_its_inputs_as_they_were():
    data = random_rollout(13, 8, 3, 0.2, 0.2)
    copies = {name: tensor.clone() for name, tensor in data.items()}
    gae(**data, gamma=0.99, gae_lambda=0.95)
    for name, tensor in data.items():
        torch.testing.assert_close(tensor, copies[name], rtol=0, atol=0, equal_nan=True)


# --- reward scaling ----------------------------------------------------------------------------------------


class PlainScaler:
    """Engstrom et al. 2020: every discounted return so far is kept, and its deviation taken afresh."""

    def __init__(self, num_envs, gamma):
        self.gamma, self.running, self.seen = gamma, [0.0] * num_envs, []

    def scale(self, reward, ended):
        for t in range(len(reward)):
            for n in range(len(self.running)):
                self.running[n] = self.gamma * self.running[n] + float(reward[t, n])
                self.seen.append(self.running[n])
                if ended[t, n]:
                    self.running[n] = 0.0
        deviation = np.sqrt(np.var(self.seen) + 1e-8)
        return np.clip(reward.numpy() / deviation, -10, 10)


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_rewards_are_scaled_by_the_deviation_of_all_discounted_returns_so_far_carried_over_between_rollouts(gamma):
    generator = torch.Generator().manual_seed(3)
    scaler, plain = RewardScaler(3, gamma=gamma), PlainScaler(3, gamma)
    for _ in range(4):
        reward = torch.randn(7, 3, generator=generator) * 5 + 1
        terminated = torch.rand(7, 3, generator=generator) < 0.15
        truncated = ~terminated & (torch.rand(7, 3, generator=generator) < 0.15)
        scaled = scaler.scale(reward, terminated, truncated)
        expected = plain.scale(reward, (terminated | truncated).numpy())
        np.testing.assert_allclose(scaled.numpy(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scaler.running_return.numpy(), plain.running, rtol=1e-9, atol=1e-9)


def test_scaled_rewards_are_clipped_and_the_rollout_keeps_its_own():
    scaler = RewardScaler(1, gamma=0.0)
    reward = torch.zeros(1000, 1)
    reward[500] = 1e6
    scaled = scaler.scale(reward, torch.zeros(1000, 1).bool(), torch.zeros(1000, 1).bool())
    assert scaled[500].item() == 10.0
    assert reward[500].item() == 1e6


def test_constant_zero_rewards_stay_zero():
    never = torch.zeros(5, 2, dtype=torch.bool)
    scaled = RewardScaler(2, gamma=0.99).scale(torch.zeros(5, 2), never, never)
    assert torch.equal(scaled, torch.zeros(5, 2))
