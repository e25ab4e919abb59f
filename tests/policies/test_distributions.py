"""Distributions over actions, against torch.distributions, integrals and exact frequencies."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import distributions as reference

from scramjet.errors import ConfigError
from scramjet.policies import Categorical, DiagonalGaussian, MultiCategorical, PolicyConfig, make_distribution
from scramjet.policies.distributions import bounds_note, colored
from scramjet.training.config.run_config import RunConfig

MULTI = MultiCategorical(MultiDiscrete([3, 2, 4]))
BOX = Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32))
CLIP, TANH = DiagonalGaussian(BOX, "clip"), DiagonalGaussian(BOX, "tanh")
COLORED = make_distribution(BOX, PolicyConfig(noise_color=1.0))
ALL = [Categorical(5), MULTI, MultiCategorical(MultiDiscrete([[2, 2], [2, 2]])), CLIP, COLORED, TANH]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(distribution, logits, noise=None, mask=None, seed=0):
    """Actions and log-probabilities for logits [B, num_inputs]."""
    noise = distribution.noise(1, len(logits), generator(seed))[0] if noise is None else noise
    action = torch.zeros(len(logits), *distribution.action_shape, dtype=distribution.action_dtype)
    log_prob = torch.zeros(len(logits))
    distribution.sample(logits, mask, noise, action, log_prob)
    return action, log_prob


def test_sampling_writes_what_the_loss_later_computes_and_no_sample_is_likelier_than_the_mode():
    for distribution in ALL:
        logits = torch.randn(64, distribution.num_inputs, generator=generator(1))
        mode = distribution.mode(logits, None)
        best, _ = distribution.log_prob_and_entropy(logits, mode, None)
        assert mode.shape == (64, *distribution.action_shape)
        for seed in range(20):
            action, written = draw(distribution, logits, seed=seed)
            computed, entropy = distribution.log_prob_and_entropy(logits, action, None)
            torch.testing.assert_close(written, computed, rtol=1e-5, atol=2e-6)
            assert written.shape == entropy.shape == (64,)
            assert written.std() > 0.01
            assert distribution is TANH or (written <= best + 1e-5).all(), distribution
    assert torch.equal(TANH.mode(logits, None), logits[:, :2]), "of a squashed one, the mean"


def test_the_noise_of_a_rollout_is_drawn_at_once_and_by_the_generator_alone():
    for distribution in ALL:
        noise = distribution.noise(7, 3, generator(5))
        assert noise.shape[:2] == (7, 3)
        torch.manual_seed(99)
        assert torch.equal(noise, distribution.noise(7, 3, generator(5)))
        assert not torch.equal(noise, distribution.noise(7, 3, generator(6)))
        assert len(set(noise.flatten().tolist())) == noise.numel()


def test_log_probabilities_of_several_actions_are_those_of_each_alone():
    for distribution in ALL:
        logits = torch.randn(6, distribution.num_inputs, generator=generator(1))
        mask = torch.ones(6, distribution.mask_size, dtype=torch.bool) if distribution.mask_size else None
        if mask is not None:
            mask[:, 0] = False
        actions = torch.stack([draw(distribution, logits, mask=mask, seed=seed)[0] for seed in range(4)], dim=1)
        found = distribution.log_probs(logits, actions, mask)
        for column in range(4):
            alone, _ = distribution.log_prob_and_entropy(logits, actions[:, column], mask)
            torch.testing.assert_close(found[:, column], alone)


# --- continuous actions ------------------------------------------------------------------------------------------


def gaussian_case(seed=0, rows=40):
    logits = torch.randn(rows, 4, generator=generator(seed)).double().clamp(-1.5, 1.5)
    return logits, logits[:, :2], logits[:, 2:].exp()


def test_gaussian_log_prob_and_entropy_are_those_of_torch_distributions():
    logits, mean, std = gaussian_case()
    action = mean + std * torch.randn(40, 2, generator=generator(1))
    log_prob, entropy = CLIP.log_prob_and_entropy(logits, action, None)
    normal = reference.Independent(reference.Normal(mean, std), 1)
    torch.testing.assert_close(log_prob, normal.log_prob(action))
    torch.testing.assert_close(entropy, normal.entropy())
    assert torch.equal(CLIP.mixed_with_dirichlet(logits, None, torch.zeros(40, 4), 0.25), logits), "only of choices"


def test_squashed_log_prob_is_that_of_torchs_transformed_distribution():
    logits, mean, std = gaussian_case()
    u = mean + std * torch.randn(40, 2, generator=generator(1))
    low, high = torch.from_numpy(BOX.low).double(), torch.from_numpy(BOX.high).double()
    squash = [
        reference.TanhTransform(cache_size=1),
        reference.AffineTransform((low + high) / 2, (high - low) / 2, cache_size=1),
    ]
    squashed = reference.TransformedDistribution(reference.Normal(mean, std), squash)
    received = (low + high) / 2 + (high - low) / 2 * torch.tanh(u)
    inside = (torch.tanh(u).abs() < 0.9999).all(1)  # the inverse of tanh loses its digits beyond
    log_prob, _ = TANH.log_prob_and_entropy(logits, u, None)
    expected = squashed.log_prob(received).sum(-1)
    assert inside.sum() > 25
    torch.testing.assert_close(log_prob[inside], expected[inside], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(TANH.env_action(u.float()).double(), received, rtol=1e-5, atol=1e-6)


def test_squashed_entropy_is_the_integral_of_minus_p_log_p():
    squashed = DiagonalGaussian(Box(-3.0, 1.0, (1,)), "tanh")
    tolerances = {-3.0: 1e-6, 0.0: 1e-5, 1.0: 5e-3, 2.0: 0.15}
    for log_std, mean in itertools.product(tolerances, (0.0, 0.8, -2.0)):
        u = mean + math.exp(log_std) * torch.linspace(-10, 10, 40_001).double().unsqueeze(1)
        logits = torch.tensor([[mean, log_std]]).double().expand(len(u), 2)
        log_prob, entropy = squashed.log_prob_and_entropy(logits, u, None)
        weight = reference.Normal(mean, math.exp(log_std)).log_prob(u.squeeze(1)).exp()
        expected = -torch.trapezoid(weight * log_prob, u.squeeze(1)).item()
        assert entropy[0].item() == pytest.approx(expected, abs=tolerances[log_std]), (log_std, mean)


def test_gradients_of_squashed_log_prob_and_entropy_agree_with_finite_differences():
    logits = torch.randn(3, 4, generator=generator(2)).double().requires_grad_()
    u = torch.randn(3, 2, generator=generator(3)).double()
    for distribution in (CLIP, TANH):
        assert torch.autograd.gradcheck(lambda x, d=distribution: d.log_prob_and_entropy(x, u, None), (logits,))


def test_squashing_is_exact_where_tanh_has_run_out_of_digits():
    """log(1 - tanh(u)^2) tends to log 4 - 2 |u|."""
    u = torch.tensor([[40.0, -60.0]])
    plain, _ = CLIP.log_prob_and_entropy(torch.zeros(1, 4), u, None)
    squashed, _ = TANH.log_prob_and_entropy(torch.zeros(1, 4), u, None)
    stretch = math.log(2.0) + math.log(0.25)
    slope = 2 * math.log(4) - 2 * 40 - 2 * 60
    assert (squashed - plain).item() == pytest.approx(-slope - stretch, rel=1e-5)
    action, log_prob = draw(TANH, torch.tensor([[40.0, -60.0, 0.0, 0.0]]), torch.zeros(1, 2))
    assert action.tolist() == [[40.0, -60.0]]
    assert log_prob.item() == pytest.approx(-math.log(2 * math.pi) - slope - stretch, rel=1e-5)


def test_gaussian_samples_have_the_mean_and_deviation_asked_for():
    logits = torch.tensor([1.0, -3.0, math.log(0.5), math.log(2.0)]).expand(50_000, 4)
    for distribution in (CLIP, TANH):
        action, _ = draw(distribution, logits)
        torch.testing.assert_close(action.mean(0), torch.tensor([1.0, -3.0]), rtol=0, atol=0.04)
        torch.testing.assert_close(action.std(0), torch.tensor([0.5, 2.0]), rtol=0, atol=0.04)
        assert np.corrcoef(action.T.numpy())[0, 1] == pytest.approx(0.0, abs=0.02)


def test_what_the_env_receives_is_within_the_space_and_the_stored_action_is_as_drawn():
    wide = torch.tensor([[0.0, 0.0, 2.0, 2.0]]).expand(500, 4)
    for distribution in (CLIP, TANH):
        action, _ = draw(distribution, wide)
        assert action.abs().max() > 5
        received = distribution.env_action(action)
        assert all(BOX.contains(row) for row in received.numpy())
    inside = torch.tensor([[1.5, 0.2]])
    assert torch.equal(CLIP.env_action(inside), inside)


def test_received_actions_take_the_shape_and_number_type_of_the_space():
    table = Box(-1.0, 1.0, (2, 3), np.float64)
    for bounded in ("clip", "tanh"):
        distribution = DiagonalGaussian(table, bounded)
        assert (distribution.num_inputs, distribution.action_shape, distribution.mask_size) == (12, (6,), 0)
        received = distribution.env_action(torch.arange(12.0).reshape(2, 6) / 20)
        assert received.dtype == torch.float64
        assert received.shape == (2, 2, 3)
        assert received[1, 1, 2] > received[1, 1, 1] > received[0, 0, 0]
    assert DiagonalGaussian(Box(-1.0, 1.0, ()), "scale").env_action(torch.zeros(4, 1)).shape == (4,)


def test_the_range_from_minus_1_to_1_is_stretched_to_bounds_and_clipped_there():
    low, high = np.array([0.0, -4.0, 100.0], np.float32), np.array([10.0, -2.0, 5000.0], np.float32)
    scaled = DiagonalGaussian(Box(low, high), "scale")
    action = torch.tensor([[-1.0, -1.0, -1.0], [0.0, 0.5, -0.5], [1.0, 1.0, 1.0], [-9.0, 9.0, 2.0]])
    assert scaled.env_action(action).tolist() == [[0, -4, 100], [5, -2.5, 1325], [10, -2, 5000], [0, -2, 5000]]
    assert all(Box(low, high).contains(row) for row in scaled.env_action(torch.randn(500, 3)).numpy())
    same, _ = scaled.log_prob_and_entropy(torch.zeros(4, 6), action, None)
    plain, _ = DiagonalGaussian(Box(low, high), "clip").log_prob_and_entropy(torch.zeros(4, 6), action, None)
    assert torch.equal(same, plain)  # of the stored action, whatever the env makes of it


def test_scaling_leaves_unit_bounds_and_numbers_without_bounds_bit_for_bit_as_they_are():
    most = np.finfo(np.float32).max
    for low, high in ((-1.0, 1.0), (-np.inf, np.inf), (-most, most), (-np.inf, 3.0)):
        space = Box(np.full(2, low, np.float32), np.full(2, high, np.float32))
        action = torch.cat([torch.randn(50, 2) * 5, torch.tensor([[-0.0, 0.0]])])
        ours, clipped = (DiagonalGaussian(space, kind).env_action(action) for kind in ("scale", "clip"))
        assert ours.numpy().tobytes() == clipped.numpy().tobytes()
    low, high = np.array([0.0, -np.inf, 0.0], np.float32), np.array([4.0, np.inf, np.inf], np.float32)
    mixed = DiagonalGaussian(Box(low, high), "scale").env_action(torch.tensor([[0.5, 0.5, -3.0], [0.5, 0.5, 1e6]]))
    assert mixed.tolist() == [[3.0, 0.5, 0.0], [3.0, 0.5, 1e6]]  # a half-bounded one is clipped on the side it has


def test_bounds_that_a_policy_hardly_reaches_are_told():
    for low, high, bounded, words in (
        (0.0, np.inf, "scale", "action 0 has bounds of 0 to inf: with a bound on one side only it is not scaled"),
        (0.0, 5000.0, "clip", "0 to 5000 and is clipped, and a new policy begins at about -1 to 1; --policy.bounded"),
        (5.0, 9.0, "clip", "5 to 9 and is clipped"),
        (0.0, 5000.0, "scale", None),
        (-2.0, 2.0, "clip", None),
        (-np.inf, np.inf, "scale", None),
    ):
        note = bounds_note(Box(low, high, (2,)), PolicyConfig(bounded_actions=bounded))
        assert words in note if words else note == "", (low, high, bounded)


def test_a_deviation_out_of_range_is_kept_at_the_limit_and_can_come_back_but_not_go_further():
    for height, limit in ((5.0, 2.0), (-30.0, -10.0)):
        _, log_std = CLIP.mean_and_log_std(torch.tensor([[0.0, 0.0, height, height]], requires_grad=True))
        assert log_std.tolist() == [[limit, limit]]
        for sign, comes_back in ((1.0, height > 0), (-1.0, height < 0)):  # descent goes against the gradient
            logits = torch.tensor([[0.0, 0.0, height, height]], requires_grad=True)
            (sign * CLIP.mean_and_log_std(logits)[1].sum()).backward()
            assert (logits.grad[0, 2:] != 0).all() == comes_back


# --- which distribution ------------------------------------------------------------------------------------------


def test_the_config_says_how_actions_are_bounded():
    half, far = torch.full((1, 2), 0.5), torch.full((1, 2), 100.0)
    tanh, clip, scale = (
        make_distribution(Box(0, 10, (2,)), PolicyConfig(bounded_actions=bounded))
        for bounded in ("tanh", "clip", "scale")
    )
    torch.testing.assert_close(tanh.env_action(half), 5 + 5 * torch.tanh(half))
    assert torch.equal(clip.env_action(half), half)
    assert scale.env_action(half).tolist() == [[7.5, 7.5]]
    for each in (tanh, clip, scale, make_distribution(Box(0, 10, (2,)), PolicyConfig())):
        assert each.env_action(far).tolist() == [[10, 10]]


def test_an_action_space_without_a_distribution_or_without_room_to_squash_into_is_refused_by_name_with_the_fix():
    for space, message in (
        (MultiBinary(3), "MultiBinary(3); supported: Discrete, MultiDiscrete and Box of floats"),
        (Dict({"a": Discrete(2)}), "Dict('a': Discrete(2)); supported"),
        (Box(0, 3, (2,), np.int32), "whole numbers are a MultiDiscrete"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            make_distribution(space, PolicyConfig())
    for space in (Box(-np.inf, np.inf, (2,)), Box(0.0, np.inf, (1,)), Box(1.0, 1.0, (1,))):
        with pytest.raises(ConfigError, match=re.escape("use --policy.bounded-actions scale")) as caught:
            make_distribution(space, PolicyConfig(bounded_actions="tanh"))
        assert "Box(" in str(caught.value)
        make_distribution(space, PolicyConfig(bounded_actions="scale"))


# --- divergences -------------------------------------------------------------------------------------------------


def test_the_divergence_of_gaussians_is_that_of_torch_and_squashing_does_not_change_it():
    a, b = (0.5 * torch.randn(2, 16, 4, generator=generator(4))).unbind()
    normal = [reference.Normal(x[:, :2], x[:, 2:].exp()) for x in (a, b)]
    expected = reference.kl_divergence(*normal).sum(1)
    torch.testing.assert_close(CLIP.kl(a, b, None), expected)
    torch.testing.assert_close(TANH.kl(a, b, None), expected)
    # E[log pi(x) - log pi'(x)] of squashed actions, by drawing them
    count = 20_000
    rows_a, rows_b = a[:1].expand(count, 4), (a[:1] + 0.3).expand(count, 4)
    action, log_prob = draw(TANH, rows_a)
    drawn = (log_prob - TANH.log_prob_and_entropy(rows_b, action, None)[0]).mean()
    torch.testing.assert_close(drawn, TANH.kl(rows_a, rows_b, None)[0], rtol=0, atol=0.03)


def test_a_policy_does_not_diverge_from_itself_and_its_gradient_is_finite():
    for distribution in ALL:
        logits = torch.randn(8, distribution.num_inputs, generator=generator(5)).requires_grad_()
        mask = torch.arange(distribution.num_inputs).expand(8, -1) % 2 == 0 if distribution.mask_size else None
        divergence = distribution.kl(logits, logits.detach(), mask)
        torch.testing.assert_close(divergence, torch.zeros(8), rtol=0, atol=1e-6)
        divergence.sum().backward()
        torch.testing.assert_close(logits.grad, torch.zeros_like(logits), rtol=0, atol=1e-5)


# --- noise that is correlated in time ----------------------------------------------------------------------------


def colored_noise(color, num_steps=256, num_rows=2000):
    return make_distribution(BOX, PolicyConfig(noise_color=color)).noise(num_steps, num_rows, generator(0))


def test_the_spectral_density_of_colored_noise_falls_as_a_power_of_the_frequency():
    white = torch.randn(1024, 4000, generator=generator(0))
    for color in (0.5, 1.0, 2.0):
        noise = colored(white, color).double()
        window = torch.hann_window(len(noise), dtype=torch.float64).unsqueeze(1)  # half a period is cut out
        power = torch.fft.rfft(noise * window, dim=0).abs().square().mean(1)
        frequency = torch.fft.rfftfreq(len(noise), dtype=torch.float64)
        middle = slice(8, 128)
        slope = np.polyfit(frequency[middle].log().numpy(), power[middle].log().numpy(), 1)[0]
        assert slope == pytest.approx(-color, abs=0.05)


def test_steps_of_colored_noise_have_mean_0_and_variance_1_and_depend_on_each_other_but_not_on_other_rows():
    for color, num_steps in itertools.product((0.5, 1.0, 2.0), (2, 7, 256)):
        noise = colored_noise(color, num_steps, num_rows=20_000 if num_steps < 10 else 4000).flatten(1)
        assert float(noise.mean(1).abs().max()) < 0.06, (color, num_steps)
        assert float((noise.var(1) - 1).abs().max()) < 0.12, (color, num_steps)
    noise = colored_noise(1.0).double()
    assert abs(float((noise[:, :, 0] * noise[:, :, 1]).mean())) < 0.02
    assert abs(float((noise[:, :-1] * noise[:, 1:]).mean())) < 0.02
    assert float((noise[:-1] * noise[1:]).mean()) > 0.5
    assert abs(float((noise[0] * noise[-1]).mean())) < 0.15  # the end does not lead into the beginning


def test_color_0_is_white_and_noise_is_drawn_into_a_given_buffer():
    assert torch.equal(colored_noise(0.0), torch.randn(256, 2000, 2, generator=generator(0)))
    for color in (0.0, 0.5):
        out = torch.empty(256, 2000, 2)
        make_distribution(BOX, PolicyConfig(noise_color=color)).noise(256, 2000, generator(0), out=out)
        assert torch.equal(out, colored_noise(color))


def test_colored_noise_is_refused_where_it_would_do_nothing():
    color = PolicyConfig(noise_color=0.5)
    for build, message in (
        (lambda: make_distribution(Discrete(2), color), "is for continuous actions"),
        (lambda: RunConfig(env="gym:Pendulum-v1", mode="async", policy=color), "step by step; use --mode sync"),
        (lambda: RunConfig(env="pendulum", algorithm="spo", policy=color), "chooses actions by search"),
    ):
        with pytest.raises(ConfigError, match=message):
            build()
