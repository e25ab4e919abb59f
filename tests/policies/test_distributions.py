"""Distributions over actions, against torch.distributions, enumeration, integrals and exact frequencies."""

import itertools
import math
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import distributions as reference

from scramjet.errors import ConfigError
from scramjet.policies import (
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    PolicyConfig,
    categorical,
    make_distribution,
)
from scramjet.policies.action_bounds import bounds_note

SIZES = (3, 2, 4)
MULTI = MultiCategorical(MultiDiscrete(SIZES))
BOX = Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32))
CLIP, TANH = DiagonalGaussian(BOX, "clip"), DiagonalGaussian(BOX, "tanh")
ALL = [Categorical(5), MULTI, MultiCategorical(MultiDiscrete([[2, 2], [2, 2]])), CLIP, TANH]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(distribution, logits, noise=None, mask=None, seed=0):
    """Actions and log-probabilities for logits [B, num_inputs]."""
    noise = distribution.noise(1, len(logits), generator(seed))[0] if noise is None else noise
    action = torch.zeros(len(logits), *distribution.action_shape, dtype=distribution.action_dtype)
    log_prob = torch.zeros(len(logits))
    distribution.sample(logits, mask, noise, action, log_prob)
    return action, log_prob


def masked_case(seed=0, rows=16):
    """Logits and a mask that leaves each component at least one choice."""
    logits = torch.randn(rows, sum(SIZES), generator=generator(seed)) * 2
    mask = torch.rand(rows, sum(SIZES), generator=generator(seed + 1)) < 0.5
    for first in (0, 3, 5):
        mask[:, first] |= True
    return logits, mask


@pytest.mark.parametrize("distribution", ALL, ids=lambda d: type(d).__name__)
def test_sampling_writes_what_the_loss_later_computes(distribution):
    logits = torch.randn(64, distribution.num_inputs, generator=generator(1))
    action, written = draw(distribution, logits)
    computed, entropy = distribution.log_prob_and_entropy(logits, action, None)
    torch.testing.assert_close(written, computed, rtol=1e-5, atol=2e-6)
    assert written.shape == entropy.shape == (64,)
    assert written.std() > 0.01


@pytest.mark.parametrize("distribution", ALL, ids=lambda d: type(d).__name__)
def test_the_noise_of_a_rollout_is_drawn_at_once_and_by_the_generator_alone(distribution):
    noise = distribution.noise(7, 3, generator(5))
    assert noise.shape[:2] == (7, 3)
    torch.manual_seed(99)
    assert torch.equal(noise, distribution.noise(7, 3, generator(5)))
    assert not torch.equal(noise, distribution.noise(7, 3, generator(6)))
    assert len(set(noise.flatten().tolist())) == noise.numel()


@pytest.mark.parametrize("distribution", ALL[:-1], ids=lambda d: type(d).__name__)
def test_the_mode_has_the_shape_of_an_action_and_no_sample_is_likelier(distribution):
    logits = torch.randn(50, distribution.num_inputs, generator=generator(2))
    mode = distribution.mode(logits, None)
    assert mode.shape == (50, *distribution.action_shape)
    best, _ = distribution.log_prob_and_entropy(logits, mode, None)
    for seed in range(20):
        _, log_prob = draw(distribution, logits, seed=seed)
        assert (log_prob <= best + 1e-5).all()


def test_the_mode_of_a_squashed_gaussian_is_taken_to_be_its_mean():
    logits = torch.randn(5, 4, generator=generator(2))
    assert torch.equal(TANH.mode(logits, None), logits[:, :2])


# --- several choices at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
def test_log_prob_and_entropy_of_several_choices_are_those_of_enumerating_all_combinations(masked):
    logits, mask = masked_case()
    log_weights = torch.where(mask, logits, torch.tensor(-torch.inf)) if masked else logits
    parts = [torch.log_softmax(part.double(), 1) for part in log_weights.split(SIZES, 1)]
    total, entropy = torch.zeros(16, dtype=torch.float64), torch.zeros(16, dtype=torch.float64)
    for combination in itertools.product(*map(range, SIZES)):
        action = torch.tensor(combination).expand(16, 3)
        joint = sum(part[:, choice] for part, choice in zip(parts, combination, strict=True))
        log_prob, ours = MULTI.log_prob_and_entropy(logits, action, mask if masked else None)
        possible = joint > -torch.inf
        torch.testing.assert_close(log_prob[possible].double(), joint[possible], rtol=1e-5, atol=1e-5)
        assert (log_prob[~possible].exp() == 0).all()
        total += joint.exp()
        entropy -= torch.where(possible, joint.exp() * joint, 0.0)
    torch.testing.assert_close(total, torch.ones_like(total))
    torch.testing.assert_close(ours.double(), entropy, rtol=1e-5, atol=1e-5)


def test_each_component_is_sampled_with_its_own_softmax_frequencies():
    count = 30_000
    logits = torch.tensor([0.5, -1.0, 1.0, 0.0, 2.0, -0.3, 0.3, 0.0, 1.0])
    action, _ = draw(MULTI, logits.expand(count, 9))
    for component, part in enumerate(logits.split(SIZES)):
        shares = torch.bincount(action[:, component], minlength=len(part)) / count
        torch.testing.assert_close(shares, torch.softmax(part, 0), rtol=0, atol=0.012)
    together = torch.bincount(action[:, 0] * 4 + action[:, 2], minlength=12) / count
    independent = torch.outer(torch.softmax(logits[:3], 0), torch.softmax(logits[5:], 0)).flatten()
    torch.testing.assert_close(together, independent, rtol=0, atol=0.012)


def test_a_masked_choice_of_any_component_is_never_sampled_never_the_mode_and_gets_no_gradient():
    logits, mask = masked_case(3)
    below_1 = float(np.nextafter(np.float32(1), np.float32(0)))
    firsts = torch.tensor([0, 3, 5])
    for number in (0.0, 0.3, 0.7, below_1):
        action, log_prob = draw(MULTI, logits, torch.full((16, 3), number), mask)
        assert mask.gather(1, action + firsts).all()
        assert torch.isfinite(log_prob).all()
    mode = MULTI.mode(logits, mask)
    assert mask.gather(1, mode + firsts).all()
    logits.requires_grad_()
    log_prob, entropy = MULTI.log_prob_and_entropy(logits, mode, mask)
    (log_prob + entropy).sum().backward()
    assert (logits.grad[~mask] == 0).all()
    assert (logits.grad[mask] != 0).any()


def test_one_component_is_the_same_as_a_categorical():
    one, single = MultiCategorical(MultiDiscrete([6])), Categorical(6)
    logits, uniform = torch.randn(32, 6, generator=generator(4)), torch.rand(32, generator=generator(5))
    action, log_prob = draw(one, logits, uniform.unsqueeze(1))
    expected, expected_log_prob = draw(single, logits, uniform)
    assert torch.equal(action.squeeze(1), expected)
    assert torch.equal(log_prob, expected_log_prob)


def test_choices_are_handed_to_the_env_in_the_spaces_shape_and_counted_from_its_start():
    table = MultiCategorical(MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [-2, 10]]))
    assert table.num_inputs == table.mask_size == 14
    assert table.env_action(torch.tensor([[1, 2, 0, 4]])).tolist() == [[[2, 2], [-2, 14]]]
    assert Categorical(3, start=5).env_action(torch.tensor([0, 2])).tolist() == [5, 7]
    action = torch.tensor([1, 0])
    assert Categorical(3).env_action(action) is action


# --- continuous actions --------------------------------------------------------------------------------------


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


def test_squashed_densities_integrate_to_1_over_the_space():
    """In one dimension; u runs over the line while the env's action runs over [0, 5]."""
    squashed = DiagonalGaussian(Box(0.0, 5.0, (1,)), "tanh")
    u = torch.linspace(-9, 9, 20_001).double().unsqueeze(1)
    received = 2.5 + 2.5 * torch.tanh(u.squeeze(1))
    for mean, log_std in ((0.0, 0.0), (1.0, -1.0), (-0.5, 0.5)):
        log_prob, _ = squashed.log_prob_and_entropy(torch.tensor([[mean, log_std]]).double().expand(20_001, 2), u, None)
        assert torch.trapezoid(log_prob.exp(), received).item() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("log_std", "tolerance"), [(-3.0, 1e-6), (0.0, 1e-5), (1.0, 5e-3), (2.0, 0.15)])
def test_squashed_entropy_is_the_integral_of_minus_p_log_p(log_std, tolerance):
    squashed = DiagonalGaussian(Box(-3.0, 1.0, (1,)), "tanh")
    std = math.exp(log_std)
    for mean in (0.0, 0.8, -2.0):
        u = mean + std * torch.linspace(-10, 10, 40_001).double().unsqueeze(1)
        logits = torch.tensor([[mean, log_std]]).double().expand(len(u), 2)
        log_prob, entropy = squashed.log_prob_and_entropy(logits, u, None)
        weight = reference.Normal(mean, std).log_prob(u.squeeze(1)).exp()
        expected = -torch.trapezoid(weight * log_prob, u.squeeze(1)).item()
        assert entropy[0].item() == pytest.approx(expected, abs=tolerance)


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
    mixed = DiagonalGaussian(Box(np.array([0.0, -np.inf], np.float32), np.array([4.0, np.inf], np.float32)), "scale")
    assert mixed.env_action(torch.tensor([[0.5, 0.5]])).tolist() == [[3.0, 0.5]]


@pytest.mark.parametrize(
    ("low", "high", "bounded", "words"),
    [
        (0.0, np.inf, "scale", "action 0 has bounds of 0 to inf: with a bound on one side only it is not scaled"),
        (0.0, 5000.0, "clip", "0 to 5000 and is clipped, and a new policy begins at about -1 to 1; --policy.bounded"),
        (5.0, 9.0, "clip", "5 to 9 and is clipped"),
        (0.0, 5000.0, "scale", None),
        (-2.0, 2.0, "clip", None),
        (-np.inf, np.inf, "scale", None),
    ],
)
def test_bounds_that_a_policy_hardly_reaches_are_told(low, high, bounded, words):
    note = bounds_note(Box(low, high, (2,)), PolicyConfig(bounded_actions=bounded))
    assert words in note if words else note == ""


def test_a_half_bounded_space_is_clipped_on_the_side_it_has():
    half = DiagonalGaussian(Box(np.array([0.0], np.float32), np.array([np.inf], np.float32)), "scale")
    assert half.env_action(torch.tensor([[-3.0], [1e6]])).tolist() == [[0.0], [1e6]]


def test_a_deviation_out_of_range_is_kept_at_the_limit_and_can_come_back_but_not_go_further():
    for height, limit in ((5.0, 2.0), (-30.0, -10.0)):
        _, log_std = CLIP.mean_and_log_std(torch.tensor([[0.0, 0.0, height, height]], requires_grad=True))
        assert log_std.tolist() == [[limit, limit]]
        for sign, comes_back in ((1.0, height > 0), (-1.0, height < 0)):  # descent goes against the gradient
            logits = torch.tensor([[0.0, 0.0, height, height]], requires_grad=True)
            (sign * CLIP.mean_and_log_std(logits)[1].sum()).backward()
            assert (logits.grad[0, 2:] != 0).all() == comes_back


# --- which distribution --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "kind", "num_inputs", "action_shape", "mask_size"),
    [
        (Discrete(7), Categorical, 7, (), 7),
        (MultiDiscrete([2, 3]), MultiCategorical, 5, (2,), 5),
        (Box(-1, 1, (3,)), DiagonalGaussian, 6, (3,), 0),
    ],
)
def test_each_action_space_has_its_distribution(space, kind, num_inputs, action_shape, mask_size):
    made = make_distribution(space, PolicyConfig())
    assert type(made) is kind
    assert (made.num_inputs, made.action_shape, made.mask_size) == (num_inputs, action_shape, mask_size)


def test_the_config_says_how_actions_are_bounded():
    action = torch.full((1, 2), 100.0)
    tanh = make_distribution(Box(-1, 1, (2,)), PolicyConfig(bounded_actions="tanh"))
    half = torch.full((1, 2), 0.5)
    torch.testing.assert_close(tanh.env_action(half), torch.tanh(half))
    clip = make_distribution(Box(-1, 1, (2,)), PolicyConfig(bounded_actions="clip"))
    assert torch.equal(clip.env_action(half), half)
    assert torch.equal(clip.env_action(action), tanh.env_action(action))
    scaled = make_distribution(Box(0, 10, (2,)), PolicyConfig())
    assert scaled.env_action(half).tolist() == [[7.5, 7.5]]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (MultiBinary(3), "MultiBinary(3); supported: Discrete, MultiDiscrete and Box of floats"),
        (Dict({"a": Discrete(2)}), "Dict('a': Discrete(2)); supported"),
        (Box(0, 3, (2,), np.int32), "whole numbers are a MultiDiscrete"),
    ],
)
def test_an_action_space_without_a_distribution_is_refused_by_name(space, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_distribution(space, PolicyConfig())


@pytest.mark.parametrize("space", [Box(-np.inf, np.inf, (2,)), Box(0.0, np.inf, (1,)), Box(1.0, 1.0, (1,))], ids=str)
def test_squashing_into_a_space_without_room_is_refused_with_the_fix(space):
    with pytest.raises(ConfigError, match=re.escape("use --policy.bounded-actions scale")) as caught:
        make_distribution(space, PolicyConfig(bounded_actions="tanh"))
    assert "Box(" in str(caught.value)
    make_distribution(space, PolicyConfig(bounded_actions="scale"))


def test_a_categorical_is_the_functions_of_its_module():
    logits, uniform = torch.randn(16, 5, generator=generator(0)), torch.rand(16, generator=generator(1))
    mask = torch.rand(16, 5, generator=generator(2)) < 0.7
    mask[:, 0] = True
    action, log_prob = draw(Categorical(5), logits, uniform, mask)
    expected, expected_log_prob = torch.zeros(16, dtype=torch.int64), torch.zeros(16)
    categorical.sample(logits, mask, uniform, expected, expected_log_prob)
    assert torch.equal(action, expected)
    assert torch.equal(log_prob, expected_log_prob)
    assert torch.equal(Categorical(5).mode(logits, mask), categorical.most_likely(logits, mask))


# --- divergences, and the noise of searches --------------------------------------------------------------------


def divergence_cases():
    a, mask = masked_case(3)
    b, _ = masked_case(7)
    return a, b, mask


def test_the_divergence_of_choices_is_that_of_torch_over_the_legal_ones():
    a, b, mask = (x[:, :5] for x in divergence_cases())
    for legal in (None, mask):
        ours = Categorical(5).kl(a, b, legal)
        for row in range(len(a)):
            keep = slice(None) if legal is None else legal[row]
            pair = (reference.Categorical(logits=logits[row, keep].double()) for logits in (a, b))
            torch.testing.assert_close(ours[row].double(), reference.kl_divergence(*pair), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_the_divergence_of_several_choices_is_the_sum_of_that_of_each(masked):
    a, b, mask = divergence_cases()
    parts = [x.split(SIZES, 1) for x in (a, b, mask)]
    expected = sum(
        Categorical(size).kl(a_part, b_part, mask_part if masked else None)
        for size, a_part, b_part, mask_part in zip(SIZES, *parts, strict=True)
    )
    torch.testing.assert_close(MULTI.kl(a, b, mask if masked else None), expected)


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


@pytest.mark.parametrize("distribution", ALL, ids=lambda d: type(d).__name__)
def test_a_policy_does_not_diverge_from_itself_and_its_gradient_is_finite(distribution):
    logits = torch.randn(8, distribution.num_inputs, generator=generator(5)).requires_grad_()
    mask = torch.arange(distribution.num_inputs).expand(8, -1) % 2 == 0 if distribution.mask_size else None
    divergence = distribution.kl(logits, logits.detach(), mask)
    torch.testing.assert_close(divergence, torch.zeros(8), rtol=0, atol=1e-6)
    divergence.sum().backward()
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), rtol=0, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.03, 0.5, 3.0])
def test_log_gammas_give_dirichlet_noise(alpha):
    log_gammas = torch.empty(20_000, 3)
    categorical.draw_log_gammas(alpha, log_gammas, generator(8))
    noise = torch.softmax(log_gammas, 1)
    exact = reference.Dirichlet(torch.full((3,), alpha))
    torch.testing.assert_close(noise.mean(0), exact.mean, rtol=0, atol=0.015)
    torch.testing.assert_close(noise.var(0), exact.variance, rtol=0.05, atol=0)
    assert noise.isfinite().all()  # gamma variates of 0.03 themselves are often 0 in float32, all three at once
    larger = log_gammas.logsumexp(1).exp()  # the sum is a gamma variate of 3 alpha
    torch.testing.assert_close(larger.mean(), torch.tensor(3 * alpha), rtol=0.05, atol=0)


@pytest.mark.parametrize("fraction", [0.0, 0.25, 1.0])
def test_noise_is_mixed_into_the_probabilities_of_legal_choices(fraction):
    logits, mask = masked_case(9)
    log_gammas = torch.randn(16, sum(SIZES), generator=generator(10)) * 20
    mixed = MULTI.mixed_with_dirichlet(logits, mask, log_gammas, fraction)
    parts = (x.split(SIZES, 1) for x in (logits, mask, log_gammas, mixed))
    for old, legal, noise, new in zip(*parts, strict=True):
        old, noise, new = (torch.softmax(x.masked_fill(~legal, -torch.inf).double(), 1) for x in (old, noise, new))
        torch.testing.assert_close(new, (1 - fraction) * old + fraction * noise, rtol=1e-5, atol=1e-6)
    alone = Categorical(3).mixed_with_dirichlet(logits[:, :3], mask[:, :3], log_gammas[:, :3], fraction)
    torch.testing.assert_close(*(categorical.mask_logits(x[:, :3], mask[:, :3]).log_softmax(1) for x in (alone, mixed)))


def test_numbers_have_no_dirichlet_noise():
    logits = torch.randn(3, 4)
    assert torch.equal(CLIP.mixed_with_dirichlet(logits, None, torch.zeros(3, 4), 0.25), logits)


@pytest.mark.parametrize("distribution", ALL, ids=lambda each: type(each).__name__)
def test_log_probabilities_of_several_actions_are_those_of_each_alone(distribution):
    logits = torch.randn(6, distribution.num_inputs, generator=generator(1))
    mask = torch.ones(6, distribution.mask_size, dtype=torch.bool) if distribution.mask_size else None
    if mask is not None:
        mask[:, 0] = False
    actions = torch.stack([draw(distribution, logits, mask=mask, seed=seed)[0] for seed in range(4)], dim=1)
    found = distribution.log_probs(logits, actions, mask)
    for column in range(4):
        alone, _ = distribution.log_prob_and_entropy(logits, actions[:, column], mask)
        torch.testing.assert_close(found[:, column], alone)
