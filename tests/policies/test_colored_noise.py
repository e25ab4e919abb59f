"""Colored noise: its spectrum, its variance, and that only the dependence in time is changed."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from scramjet.errors import ConfigError
from scramjet.policies import PolicyConfig
from scramjet.policies.colored_noise import colored
from scramjet.policies.distributions import make_distribution
from scramjet.training.config.run_config import RunConfig

BOX = Box(-1, 1, (2,), np.float32)


def drawn(color: float, num_steps: int = 256, num_rows: int = 2000, seed: int = 0) -> torch.Tensor:
    distribution = make_distribution(BOX, PolicyConfig(noise_color=color))
    return distribution.noise(num_steps, num_rows, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("color", [0.5, 1.0, 2.0])
def test_the_spectral_density_falls_as_a_power_of_the_frequency(color):
    white = torch.randn(1024, 4000, generator=torch.Generator().manual_seed(0))
    noise = colored(white, color).double()
    window = torch.hann_window(len(noise), dtype=torch.float64).unsqueeze(1)  # half a period is cut out of the filter
    power = torch.fft.rfft(noise * window, dim=0).abs().square().mean(1)
    frequency = torch.fft.rfftfreq(len(noise), dtype=torch.float64)
    middle = slice(8, 128)
    slope = np.polyfit(frequency[middle].log().numpy(), power[middle].log().numpy(), 1)[0]
    assert slope == pytest.approx(-color, abs=0.05)


@pytest.mark.parametrize("color", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("num_steps", [2, 7, 256])
def test_every_step_has_mean_0_and_variance_1(color, num_steps):
    noise = drawn(color, num_steps, num_rows=20_000 if num_steps < 10 else 4000).flatten(1)
    assert float(noise.mean(1).abs().max()) < 0.06
    assert float((noise.var(1) - 1).abs().max()) < 0.12


def test_rows_and_components_are_independent_and_steps_are_not():
    noise = drawn(1.0).double()
    assert abs(float((noise[:, :, 0] * noise[:, :, 1]).mean())) < 0.02
    assert abs(float((noise[:, :-1] * noise[:, 1:]).mean())) < 0.02
    assert float((noise[:-1] * noise[1:]).mean()) > 0.5
    assert abs(float((noise[0] * noise[-1]).mean())) < 0.15  # the end does not lead into the beginning


def test_color_0_draws_what_was_always_drawn():
    expected = torch.randn(256, 2000, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(drawn(0.0), expected)


def test_the_same_generator_draws_the_same_noise_into_a_given_buffer():
    out = torch.empty(256, 2000, 2)
    distribution = make_distribution(BOX, PolicyConfig(noise_color=0.5))
    distribution.noise(256, 2000, torch.Generator().manual_seed(0), out=out)
    assert torch.equal(out, drawn(0.5))


def test_log_probabilities_of_actions_drawn_with_it_are_those_of_the_gaussian():
    noise = drawn(1.0, num_steps=8, num_rows=5)
    distribution = make_distribution(BOX, PolicyConfig(noise_color=1.0))
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).clamp(-1, 1)  # within the bounds of a std
    action, log_prob = torch.empty(5, 2), torch.empty(5)
    distribution.sample(logits, None, noise[3], action, log_prob)
    normal = torch.distributions.Normal(logits[:, :2], logits[:, 2:].exp())
    torch.testing.assert_close(log_prob, normal.log_prob(action).sum(1))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda color: make_distribution(Discrete(2), color), "is for continuous actions"),
        (lambda color: RunConfig(env="gym:Pendulum-v1", mode="async", policy=color), "step by step; use --mode sync"),
        (lambda color: RunConfig(env="pendulum", algorithm="spo", policy=color), "chooses actions by search"),
    ],
)
def test_where_it_would_do_nothing_it_is_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build(PolicyConfig(noise_color=0.5))
