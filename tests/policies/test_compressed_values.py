"""Two-hot values: weights that encode a number exactly, and the head that learns them."""

import copy

import pytest
import torch

from scramjet.policies.compressed_values import BIN_RANGE, TwoHotHead, symexp, symlog, two_hot

BINS = torch.linspace(-3, 3, 7)


def test_weights_are_those_of_the_two_neighbours():
    expected = torch.tensor([[0, 0, 0, 0, 0.75, 0.25, 0], [0, 1, 0, 0, 0, 0, 0]])
    torch.testing.assert_close(two_hot(torch.tensor([1.25, -2.0]), BINS), expected)


def test_numbers_within_the_bins_are_encoded_exactly():
    numbers = torch.linspace(-3, 3, 1001)
    weights = two_hot(numbers, BINS)
    torch.testing.assert_close((weights * BINS).sum(1), numbers)
    torch.testing.assert_close(weights.sum(1), torch.ones(1001))
    assert int((weights > 0).sum(1).max()) == 2


def test_numbers_beyond_the_bins_are_the_outermost():
    assert two_hot(torch.tensor([-9.0, 9.0]), BINS).argmax(1).tolist() == [0, 6]


def test_every_value_is_0_at_first():
    assert float(TwoHotHead(4, 101)(torch.randn(8, 4)).detach().abs().max()) == pytest.approx(0, abs=1e-4)


def test_logits_that_are_the_weights_of_a_return_give_it_as_value():
    head, returns = TwoHotHead(1, 101), torch.tensor([12_345.0])
    with torch.no_grad():
        head.layer.bias.copy_(two_hot(symlog(returns), head.bins)[0].log().clamp(min=-1e3))
    assert float(head(torch.zeros(1, 1)).detach()) == pytest.approx(12_345, rel=1e-3)


def test_the_loss_is_the_cross_entropy_and_its_gradient_softmax_minus_weights():
    torch.manual_seed(0)
    head, returns = TwoHotHead(3, 11), torch.tensor([0.5, -400.0])
    with torch.no_grad():
        head.layer.bias.copy_(torch.randn(11))
    value = head(torch.zeros(2, 3))
    head.loss(returns).sum().backward()
    expected = (head.layer.bias.softmax(0) - two_hot(symlog(returns), head.bins)).sum(0)
    torch.testing.assert_close(head.layer.bias.grad, expected.detach())
    torch.testing.assert_close(value[0], symexp((head.layer.bias.softmax(0) * head.bins).sum()).view(1))
    assert float(head.bins[-1]) == BIN_RANGE


def test_a_head_whose_values_were_just_computed_can_be_copied():
    head = TwoHotHead(3, 11)
    head(torch.randn(2, 3))
    assert copy.deepcopy(head).layer.weight.equal(head.layer.weight)
