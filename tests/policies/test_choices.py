"""Distributions over one or several choices, against torch.distributions, exact frequencies and their limits."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Dirichlet, kl_divergence

from scramjet.policies import Categorical, MultiCategorical, categorical

JUST_BELOW_1 = float(np.nextafter(np.float32(1), np.float32(0)))
SIZES = (3, 2, 4)
MULTI = MultiCategorical(MultiDiscrete(SIZES))
CHOICES = st.sampled_from([(Categorical(5), (5,)), (MultiCategorical(MultiDiscrete([5])), (5,)), (MULTI, SIZES)])
SEEDS = st.integers(0, 2**32 - 1)


def draw(distribution, logits, uniform, mask=None):
    """Actions and log-probabilities for logits [B, num_inputs] and numbers in [0, 1)."""
    action, log_prob = torch.zeros(len(logits), *distribution.action_shape, dtype=torch.int64), torch.zeros(len(logits))
    distribution.sample(logits, mask, uniform.reshape(action.shape), action, log_prob)
    return action, log_prob


def random_case(seed, sizes, rows=8, spread=3.0):
    """Logits, a mask with at least one legal choice in each component, and legal choices [rows, components]."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, sum(sizes), generator=generator) * spread
    legal = torch.stack([torch.randint(size, (rows,), generator=generator) for size in sizes], 1)
    firsts = torch.tensor([sum(sizes[:i]) for i in range(len(sizes))])
    mask = torch.rand(rows, sum(sizes), generator=generator) < 0.5
    return logits, mask.scatter(1, legal + firsts, True), legal


@settings(max_examples=40)
@given(seed=SEEDS)
def test_evenly_spread_uniforms_give_each_action_its_softmax_share(seed):
    count = 20_000
    logits = torch.randn(6, generator=torch.Generator().manual_seed(seed)) * 2
    action, _ = draw(Categorical(6), logits.expand(count, 6), (torch.arange(count) + 0.5) / count)
    shares = torch.bincount(action, minlength=6) / count
    torch.testing.assert_close(shares, torch.softmax(logits, 0), rtol=0, atol=3e-4)


@settings(max_examples=80)
@given(case=CHOICES, seed=SEEDS, masked=st.booleans())
def test_all_is_as_torch_has_it_for_each_component_over_its_legal_choices_alone(case, seed, masked):
    """Log-probabilities, entropies, divergences and modes; what is masked gets no gradient."""
    distribution, sizes = case
    logits, mask, legal = random_case(seed, sizes)
    others, legal_mask = random_case(seed + 1, sizes)[0], mask if masked else None
    logits.requires_grad_()
    log_prob, entropy = distribution.log_prob_and_entropy(logits, legal.view(8, *distribution.action_shape), legal_mask)
    divergence = distribution.kl(logits, others, legal_mask)
    mode = distribution.mode(logits, legal_mask).view(8, len(sizes))
    for row in range(8):
        expected = torch.zeros(3, dtype=torch.float64)
        parts = zip(
            *(each[row].detach().split(sizes) for each in (logits, others, mask)), legal[row], mode[row], strict=True
        )
        for own, other, is_legal, choice, likeliest in parts:
            kept = is_legal.nonzero().squeeze(1) if masked else torch.arange(len(own))
            reference, away = (TorchCategorical(logits=each[kept].double()) for each in (own, other))
            place = (kept == choice).nonzero().squeeze()
            expected += torch.stack([reference.log_prob(place), reference.entropy(), kl_divergence(reference, away)])
            assert likeliest == kept[own[kept].argmax()]
        found = torch.stack([log_prob[row], entropy[row], divergence[row]]).detach().double()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-5)
    if masked:
        (log_prob + entropy).sum().backward()
        assert (logits.grad[~mask] == 0).all()


@settings(max_examples=80)
@given(case=CHOICES, seed=SEEDS, masked=st.booleans())
def test_a_masked_choice_is_never_sampled_and_the_log_prob_written_is_the_one_the_loss_computes(case, seed, masked):
    distribution, sizes = case
    logits, mask, _ = random_case(seed, sizes)
    for number in (0.0, 0.25, 0.5, 0.999, JUST_BELOW_1, None):
        uniform = torch.rand(8, len(sizes)) if number is None else torch.full((8, len(sizes)), number)
        action, written = draw(distribution, logits, uniform, mask if masked else None)
        computed, _ = distribution.log_prob_and_entropy(logits, action, mask if masked else None)
        torch.testing.assert_close(written, computed, rtol=1e-5, atol=1e-5)
        for choice, is_legal in zip(action.view(8, -1).T, mask.split(sizes, 1), strict=True):
            assert not masked or is_legal[torch.arange(8), choice].all()


def test_each_component_is_sampled_with_its_own_softmax_frequencies():
    count, logits = 30_000, torch.tensor([0.5, -1.0, 1.0, 0.0, 2.0, -0.3, 0.3, 0.0, 1.0])
    action, _ = draw(MULTI, logits.expand(count, 9), torch.rand(count, 3))
    for component, part in enumerate(logits.split(SIZES)):
        shares = torch.bincount(action[:, component], minlength=len(part)) / count
        torch.testing.assert_close(shares, torch.softmax(part, 0), rtol=0, atol=0.012)
    together = torch.bincount(action[:, 0] * 4 + action[:, 2], minlength=12) / count
    independent = torch.outer(torch.softmax(logits[:3], 0), torch.softmax(logits[5:], 0)).flatten()
    torch.testing.assert_close(together, independent, rtol=0, atol=0.012)


def test_a_masked_action_has_probability_exactly_0_and_a_finite_log_prob_far_below_any_other():
    logits, mask = torch.tensor([[50.0, 0.0, 1.0]]), torch.tensor([[False, True, True]])
    log_prob, entropy = categorical.log_prob_and_entropy(logits, torch.tensor([0]), mask)
    assert (log_prob.item(), log_prob.exp().item()) == (pytest.approx(-1e9, rel=1e-6), 0.0)
    p = 1 / (1 + math.e)
    assert entropy.item() == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), abs=1e-6)
    assert logits.tolist() == [[50.0, 0.0, 1.0]], "what was given is not masked in place"
    # a single legal action is certain and has no entropy and no gradient
    logits, mask = torch.tensor([[3.0, -2.0, 8.0]], requires_grad=True), torch.tensor([[False, True, False]])
    log_prob, entropy = categorical.log_prob_and_entropy(logits, torch.tensor([1]), mask)
    assert (log_prob.item(), entropy.item()) == (0.0, 0.0)
    (log_prob + entropy).sum().backward()
    assert torch.equal(logits.grad, torch.zeros(1, 3))
    for number in (0.0, 0.5, JUST_BELOW_1):
        action, written = draw(Categorical(3), logits.detach(), torch.tensor([number]), mask)
        assert (action.item(), written.item()) == (1, 0.0)


def test_gradients_of_masked_log_probs_and_entropies_agree_with_finite_differences():
    logits, mask, legal = random_case(3, (4,), rows=3, spread=1.0)
    function = lambda x: categorical.log_prob_and_entropy(x, legal[:, 0], mask)  # noqa: E731
    assert torch.autograd.gradcheck(function, (logits.double().requires_grad_(),))


def test_all_equal_logits_are_uniform_whatever_their_height():
    for height in (0.0, -1e4, 1e4, 3e38):
        logits = torch.full((8, 4), height)
        action, log_prob = draw(Categorical(4), logits, (torch.arange(8) + 0.5) / 8)
        assert action.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        torch.testing.assert_close(log_prob, torch.full((8,), math.log(0.25)))
        _, entropy = categorical.log_prob_and_entropy(logits, action, None)
        torch.testing.assert_close(entropy, torch.full((8,), math.log(4.0)))


def test_extreme_logits_give_certain_actions_and_finite_numbers():
    logits = torch.tensor([[-1e4, 1e4, 0.0], [88.0, -88.0, -1e6], [0.0, -1e6, 1e6]])
    for number in (0.0, 0.5, JUST_BELOW_1):
        action, log_prob = draw(Categorical(3), logits, torch.full((3,), number))
        assert action.tolist() == [1, 0, 2]
        assert log_prob.tolist() == [0.0, 0.0, 0.0]
    log_prob, entropy = categorical.log_prob_and_entropy(logits, torch.tensor([0, 1, 1]), None)
    assert torch.isfinite(log_prob).all()
    torch.testing.assert_close(entropy, torch.zeros(3))


def test_each_action_has_the_half_open_interval_of_its_probability():
    """1 itself is never drawn; it stands for a sum that rounding leaves short."""
    for legal, drawn in (
        ([1, 1, 1, 1], {0.0: 0, 0.25: 1, 0.5: 2, 0.75: 3, JUST_BELOW_1: 3, 1.0: 3}),
        ([0, 1, 1, 0], {0.0: 1, 0.49: 1, 0.5: 2, JUST_BELOW_1: 2, 1.0: 2}),
    ):
        logits, mask = torch.zeros(len(drawn), 4), torch.tensor([legal] * len(drawn)).bool()
        assert draw(Categorical(4), logits, torch.tensor(list(drawn)), mask)[0].tolist() == list(drawn.values())


def test_choices_are_handed_to_the_env_in_the_spaces_shape_and_counted_from_its_start():
    table = MultiCategorical(MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [-2, 10]]))
    assert table.num_inputs == table.mask_size == 14
    assert table.env_action(torch.tensor([[1, 2, 0, 4]])).tolist() == [[[2, 2], [-2, 14]]]
    assert Categorical(3, start=5).env_action(torch.tensor([0, 2])).tolist() == [5, 7]
    action = torch.tensor([1, 0])
    assert Categorical(3).env_action(action) is action


# --- the noise of searches ---------------------------------------------------------------------------------------


def test_log_gammas_give_dirichlet_noise():
    for alpha in (0.03, 0.5, 3.0):
        log_gammas = torch.empty(20_000, 3)
        categorical.draw_log_gammas(alpha, log_gammas, torch.Generator().manual_seed(8))
        noise = torch.softmax(log_gammas, 1)
        exact = Dirichlet(torch.full((3,), alpha))
        torch.testing.assert_close(noise.mean(0), exact.mean, rtol=0, atol=0.015)
        torch.testing.assert_close(noise.var(0), exact.variance, rtol=0.05, atol=0)
        assert noise.isfinite().all()  # gamma variates of 0.03 themselves are often 0 in float32, all three at once
        larger = log_gammas.logsumexp(1).exp()  # the sum is a gamma variate of 3 alpha
        torch.testing.assert_close(larger.mean(), torch.tensor(3 * alpha), rtol=0.05, atol=0)


def test_noise_is_mixed_into_the_probabilities_of_legal_choices():
    logits, mask, _ = random_case(9, SIZES, rows=16)
    log_gammas = torch.randn(16, sum(SIZES)) * 20
    for fraction in (0.0, 0.25, 1.0):
        mixed = MULTI.mixed_with_dirichlet(logits, mask, log_gammas, fraction)
        parts = (each.split(SIZES, 1) for each in (logits, mask, log_gammas, mixed))
        for size, old, legal, noise, new in zip(SIZES, *parts, strict=True):
            alone = Categorical(size).mixed_with_dirichlet(old, legal, noise, fraction)
            before, drawn, found, same = (
                each.masked_fill(~legal, -torch.inf).double().softmax(1) for each in (old, noise, new, alone)
            )
            torch.testing.assert_close(found, (1 - fraction) * before + fraction * drawn, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(same, found)
