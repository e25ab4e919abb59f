"""The categorical distribution, against torch.distributions, exact frequencies and its limits."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scramjet.policies import categorical

JUST_BELOW_1 = float(np.nextafter(np.float32(1), np.float32(0)))


def draw(logits, uniform, mask=None):
    """Actions and log-probabilities for logits [B, A] and numbers in [0, 1)."""
    action = torch.zeros(len(logits), dtype=torch.int64)
    log_prob = torch.zeros(len(logits))
    categorical.sample(logits, mask, uniform, action, log_prob)
    return action, log_prob


def random_case(seed, rows=8, actions=5, spread=3.0):
    """Logits, a mask with at least one legal action in each row, and a legal action."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, actions, generator=generator) * spread
    legal = torch.randint(actions, (rows,), generator=generator)
    mask = torch.rand(rows, actions, generator=generator) < 0.5
    mask[torch.arange(rows), legal] = True
    return logits, mask, legal


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_evenly_spread_uniforms_give_each_action_its_softmax_share(seed):
    count = 20_000
    logits = torch.randn(6, generator=torch.Generator().manual_seed(seed)) * 2
    uniform = (torch.arange(count) + 0.5) / count
    action, _ = draw(logits.expand(count, 6), uniform)
    shares = torch.bincount(action, minlength=6) / count
    torch.testing.assert_close(shares, torch.softmax(logits, 0), rtol=0, atol=3e-4)


def test_sampled_frequencies_pass_a_chi_square_test_against_the_softmax():
    count = 200_000
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5])
    uniform = torch.rand(count, generator=torch.Generator().manual_seed(7))
    action, _ = draw(logits.expand(count, 5), uniform)
    expected = torch.softmax(logits.double(), 0) * count
    chi_square = ((torch.bincount(action, minlength=5) - expected) ** 2 / expected).sum().item()
    assert chi_square < 18.47  # the 0.999 quantile with 4 degrees of freedom


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_masked_action_is_never_sampled(seed):
    logits, mask, _ = random_case(seed)
    for number in (0.0, 0.25, 0.5, 0.999, JUST_BELOW_1):
        action, log_prob = draw(logits, torch.full((8,), number), mask)
        assert mask[torch.arange(8), action].all()
        assert torch.isfinite(log_prob).all()


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), masked=st.booleans())
def test_log_prob_and_entropy_equal_those_of_torch_distributions_over_the_legal_actions(seed, masked):
    logits, mask, legal = random_case(seed)
    log_prob, entropy = categorical.log_prob_and_entropy(logits, legal, mask if masked else None)
    for row in range(8):
        kept = mask[row].nonzero().squeeze(1) if masked else torch.arange(5)
        reference = torch.distributions.Categorical(logits=logits[row, kept].double())
        place = (kept == legal[row]).nonzero().squeeze()
        assert log_prob[row].item() == pytest.approx(reference.log_prob(place).item(), abs=1e-5)
        assert entropy[row].item() == pytest.approx(reference.entropy().item(), abs=1e-5)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), masked=st.booleans())
def test_the_log_prob_written_while_sampling_is_the_one_the_loss_computes(seed, masked):
    logits, mask, _ = random_case(seed)
    mask = mask if masked else None
    uniform = torch.rand(8, generator=torch.Generator().manual_seed(seed))
    action, written = draw(logits, uniform, mask)
    computed, _ = categorical.log_prob_and_entropy(logits, action, mask)
    torch.testing.assert_close(written, computed, rtol=1e-5, atol=1e-6)


def test_a_masked_action_has_probability_exactly_0_and_a_finite_log_prob_far_below_any_other():
    logits = torch.tensor([[50.0, 0.0, 1.0]])
    mask = torch.tensor([[False, True, True]])
    log_prob, entropy = categorical.log_prob_and_entropy(logits, torch.tensor([0]), mask)
    assert log_prob.item() == pytest.approx(-1e9, rel=1e-6)
    assert log_prob.exp().item() == 0.0
    p = 1 / (1 + math.e)
    assert entropy.item() == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), abs=1e-6)


def test_with_a_single_legal_action_it_is_certain_and_has_no_entropy_and_no_gradient():
    logits = torch.tensor([[3.0, -2.0, 8.0]], requires_grad=True)
    mask = torch.tensor([[False, True, False]])
    log_prob, entropy = categorical.log_prob_and_entropy(logits, torch.tensor([1]), mask)
    assert log_prob.item() == 0.0
    assert entropy.item() == 0.0
    (log_prob + entropy).sum().backward()
    assert torch.equal(logits.grad, torch.zeros(1, 3))
    for number in (0.0, 0.5, JUST_BELOW_1):
        action, written = draw(logits.detach(), torch.tensor([number]), mask)
        assert (action.item(), written.item()) == (1, 0.0)
    assert categorical.most_likely(logits, mask).item() == 1


def test_gradients_of_masked_log_probs_and_entropies_agree_with_finite_differences():
    logits, mask, legal = random_case(3, rows=3, actions=4, spread=1.0)
    logits = logits.double().requires_grad_()

    def both(x):
        log_prob, entropy = categorical.log_prob_and_entropy(x, legal, mask)
        return log_prob.sum() + 0.3 * entropy.sum()

    assert torch.autograd.gradcheck(both, (logits,))
    both(logits).backward()
    assert torch.equal(logits.grad[~mask], torch.zeros_like(logits.grad[~mask]))


def test_all_equal_logits_are_uniform_whatever_their_height():
    for height in (0.0, -1e4, 1e4, 3e38):
        logits = torch.full((8, 4), height)
        action, log_prob = draw(logits, (torch.arange(8) + 0.5) / 8)
        assert action.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        torch.testing.assert_close(log_prob, torch.full((8,), math.log(0.25)))
        _, entropy = categorical.log_prob_and_entropy(logits, action, None)
        torch.testing.assert_close(entropy, torch.full((8,), math.log(4.0)))


def test_extreme_logits_give_certain_actions_and_finite_numbers():
    logits = torch.tensor([[-1e4, 1e4, 0.0], [88.0, -88.0, -1e6], [0.0, -1e6, 1e6]])
    for number in (0.0, 0.5, JUST_BELOW_1):
        action, log_prob = draw(logits, torch.full((3,), number))
        assert action.tolist() == [1, 0, 2]
        assert log_prob.tolist() == [0.0, 0.0, 0.0]
    log_prob, entropy = categorical.log_prob_and_entropy(logits, torch.tensor([0, 1, 1]), None)
    assert torch.isfinite(log_prob).all()
    torch.testing.assert_close(entropy, torch.zeros(3))


def test_uniform_0_gives_the_first_possible_action_and_just_below_1_the_last():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0]])
    assert draw(logits, torch.tensor([0.0]))[0].item() == 0
    assert draw(logits, torch.tensor([JUST_BELOW_1]))[0].item() == 3
    mask = torch.tensor([[False, True, True, False]])
    assert draw(logits, torch.tensor([0.0]), mask)[0].item() == 1
    assert draw(logits, torch.tensor([JUST_BELOW_1]), mask)[0].item() == 2


def test_each_action_has_the_half_open_interval_of_its_probability():
    action, _ = draw(torch.zeros(4, 4), torch.tensor([0.0, 0.25, 0.5, 0.75]))
    assert action.tolist() == [0, 1, 2, 3]


def test_a_uniform_beyond_the_sum_gives_the_last_action_that_is_possible_at_all():
    """1 itself is never drawn; it stands for a sum that rounding leaves short."""
    mask = torch.tensor([[True, True, False]])
    assert draw(torch.zeros(1, 3), torch.tensor([1.0]), mask)[0].item() == 1


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_most_likely_action_is_the_legal_one_of_highest_logit(seed):
    logits, mask, _ = random_case(seed)
    expected = [max((a for a in range(5) if mask[row, a]), key=lambda a: logits[row, a]) for row in range(8)]
    assert categorical.most_likely(logits, mask).tolist() == expected
    assert categorical.most_likely(logits, None).tolist() == logits.argmax(1).tolist()


def test_masking_leaves_the_logits_given_to_it_as_they_were():
    logits = torch.tensor([[1.0, 2.0]])
    categorical.mask_logits(logits, torch.tensor([[True, False]]))
    assert logits.tolist() == [[1.0, 2.0]]
